"""Pictures: functions that take and return a matplotlib Axes or an array of them (the `plot` extra).

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reluscope._lazy import lazy_door

if TYPE_CHECKING:
    from reluscope.plot.answers import plot_cdf as plot_cdf
    from reluscope.plot.answers import plot_joint_pdf as plot_joint_pdf
    from reluscope.plot.answers import plot_masses as plot_masses
    from reluscope.plot.answers import plot_pdf as plot_pdf
    from reluscope.plot.answers import plot_spectrum as plot_spectrum
    from reluscope.plot.certificates import plot_certificates as plot_certificates
    from reluscope.plot.complexes import plot_complex as plot_complex
    from reluscope.plot.complexes import plot_topology as plot_topology
    from reluscope.plot.explanations import plot_explanation as plot_explanation
    from reluscope.plot.explanations import plot_intervals as plot_intervals
    from reluscope.plot.instances import plot_instances as plot_instances
    from reluscope.plot.instances import plot_local_lines as plot_local_lines
    from reluscope.plot.invariance import plot_growth as plot_growth
    from reluscope.plot.laws import plot_law as plot_law
    from reluscope.plot.laws import plot_law_check as plot_law_check
    from reluscope.plot.layers import plot_activity as plot_activity
    from reluscope.plot.layers import plot_angles as plot_angles
    from reluscope.plot.layers import plot_clouds as plot_clouds
    from reluscope.plot.layers import plot_column as plot_column
    from reluscope.plot.layers import plot_dimensions as plot_dimensions
    from reluscope.plot.layers import plot_distances as plot_distances
    from reluscope.plot.layers import plot_geometry as plot_geometry
    from reluscope.plot.layers import plot_heat as plot_heat
    from reluscope.plot.layers import plot_layers as plot_layers
    from reluscope.plot.layers import plot_ranks as plot_ranks
    from reluscope.plot.layers import plot_width as plot_width
    from reluscope.plot.lens import plot_ablation as plot_ablation
    from reluscope.plot.lens import plot_attended as plot_attended
    from reluscope.plot.lens import plot_attention as plot_attention
    from reluscope.plot.lens import plot_attribution as plot_attribution
    from reluscope.plot.lens import plot_attributions as plot_attributions
    from reluscope.plot.lens import plot_channels as plot_channels
    from reluscope.plot.lens import plot_field as plot_field
    from reluscope.plot.lens import plot_frame_strip as plot_frame_strip
    from reluscope.plot.lens import plot_heads as plot_heads
    from reluscope.plot.lens import plot_kernels as plot_kernels
    from reluscope.plot.lens import plot_logit_lens as plot_logit_lens
    from reluscope.plot.lens import plot_on_image as plot_on_image
    from reluscope.plot.lens import plot_patching as plot_patching
    from reluscope.plot.lens import plot_pictures as plot_pictures
    from reluscope.plot.lens import plot_strongest as plot_strongest
    from reluscope.plot.lens import plot_templates as plot_templates
    from reluscope.plot.lens import plot_trajectory as plot_trajectory
    from reluscope.plot.lens import plot_z_scores as plot_z_scores
    from reluscope.plot.local_models import plot_bubble as plot_bubble
    from reluscope.plot.local_models import plot_importance as plot_importance
    from reluscope.plot.local_models import plot_models_2d as plot_models_2d
    from reluscope.plot.local_models import plot_pair as plot_pair
    from reluscope.plot.local_models import plot_parallel as plot_parallel
    from reluscope.plot.local_models import plot_partial as plot_partial
    from reluscope.plot.local_models import plot_performance as plot_performance
    from reluscope.plot.local_models import plot_profile as plot_profile
    from reluscope.plot.local_models import plot_violin as plot_violin
    from reluscope.plot.merged import plot_l1_path as plot_l1_path
    from reluscope.plot.merged import plot_merged as plot_merged
    from reluscope.plot.persistence import plot_persistence as plot_persistence
    from reluscope.plot.regions import plot_function as plot_function
    from reluscope.plot.regions import plot_images as plot_images
    from reluscope.plot.regions import plot_regions as plot_regions
    from reluscope.plot.regions import plot_slice as plot_slice

_HOME = {
    name: module
    for module, names in {
        "answers": "plot_cdf plot_joint_pdf plot_masses plot_pdf plot_spectrum",
        "certificates": "plot_certificates",
        "complexes": "plot_complex plot_topology",
        "explanations": "plot_explanation plot_intervals",
        "invariance": "plot_growth",
        "instances": "plot_instances plot_local_lines",
        "laws": "plot_law plot_law_check",
        "layers": (
            "plot_activity plot_angles plot_clouds plot_column plot_dimensions plot_distances plot_geometry "
            "plot_heat plot_layers plot_ranks plot_width"
        ),
        "lens": (
            "plot_ablation plot_attended plot_attention plot_attribution plot_attributions plot_channels "
            "plot_field plot_frame_strip plot_heads plot_kernels plot_logit_lens plot_on_image plot_patching "
            "plot_pictures plot_strongest plot_templates plot_trajectory plot_z_scores"
        ),
        "local_models": (
            "plot_bubble plot_importance plot_models_2d plot_pair plot_parallel plot_partial plot_performance "
            "plot_profile plot_violin"
        ),
        "merged": "plot_l1_path plot_merged",
        "persistence": "plot_persistence",
        "regions": "plot_function plot_images plot_regions plot_slice",
    }.items()
    for name in names.split()
}

__all__ = sorted(_HOME)

__getattr__ = lazy_door(__name__, _HOME)
