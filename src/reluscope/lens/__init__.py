"""Pictures of convolutional networks and of attention, and what parts of any model do: `reluscope.lens`.

`as_model` puts one face on torch modules and ONNX files; the other functions take what it returns. Names are imported
when they are first used; torch is only needed where gradients or live modules are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reluscope._lazy import lazy_door

if TYPE_CHECKING:
    from reluscope.lens.ablation import ablate_channels as ablate_channels
    from reluscope.lens.ablation import ablate_heads as ablate_heads
    from reluscope.lens.ablation import head_removed as head_removed
    from reluscope.lens.attention import Recording as Recording
    from reluscope.lens.attention import load_recording as load_recording
    from reluscope.lens.attention import record_attention as record_attention
    from reluscope.lens.attention import record_onnx as record_onnx
    from reluscope.lens.attention import record_stream as record_stream
    from reluscope.lens.attribution import attribute as attribute
    from reluscope.lens.bridge import local_map as local_map
    from reluscope.lens.channels import channel_maps as channel_maps
    from reluscope.lens.channels import colour_basis as colour_basis
    from reluscope.lens.channels import dead_channels as dead_channels
    from reluscope.lens.channels import kernels as kernels
    from reluscope.lens.channels import overlay as overlay
    from reluscope.lens.channels import strongest as strongest
    from reluscope.lens.filters import channel as channel
    from reluscope.lens.filters import crops as crops
    from reluscope.lens.filters import direction as direction
    from reluscope.lens.filters import measure as measure
    from reluscope.lens.filters import neuron as neuron
    from reluscope.lens.filters import visualise as visualise
    from reluscope.lens.frames import load_frames as load_frames
    from reluscope.lens.frames import resize as resize
    from reluscope.lens.heads import detect_patterns as detect_patterns
    from reluscope.lens.interventions import ablate as ablate
    from reluscope.lens.interventions import patch as patch
    from reluscope.lens.interventions import patch_paths as patch_paths
    from reluscope.lens.logits import logit_lens as logit_lens
    from reluscope.lens.models import as_model as as_model
    from reluscope.lens.receptive import effective_field as effective_field
    from reluscope.lens.receptive import receptive_field as receptive_field
    from reluscope.lens.receptive import receptive_fields as receptive_fields
    from reluscope.lens.streams import associate_events as associate_events
    from reluscope.lens.streams import attention_change as attention_change
    from reluscope.lens.streams import edit_stream as edit_stream
    from reluscope.lens.study import write_study as write_study
    from reluscope.lens.vpt import load_vpt as load_vpt
    from reluscope.lens.vpt import vpt_cnn as vpt_cnn
    from reluscope.lens.vpt import vpt_policy as vpt_policy

_HOME = {
    name: module
    for module, names in {
        "ablation": "ablate_channels ablate_heads head_removed",
        "attention": "Recording load_recording record_attention record_onnx record_stream",
        "attribution": "attribute",
        "bridge": "local_map",
        "channels": "channel_maps colour_basis dead_channels kernels overlay strongest",
        "filters": "channel crops direction measure neuron visualise",
        "frames": "load_frames resize",
        "heads": "detect_patterns",
        "interventions": "ablate patch patch_paths",
        "logits": "logit_lens",
        "models": "as_model",
        "receptive": "effective_field receptive_field receptive_fields",
        "streams": "associate_events attention_change edit_stream",
        "study": "write_study",
        "vpt": "load_vpt vpt_cnn vpt_policy",
    }.items()
    for name in names.split()
}

__all__ = sorted(_HOME)

__getattr__ = lazy_door(__name__, _HOME)
