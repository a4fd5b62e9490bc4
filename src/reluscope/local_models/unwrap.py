"""Unwrapping: a network written as the linear models of the regions that hold data.

On the region of an activation pattern P the network is `eta(x) = w_P · x + b_P`. `unwrap` finds the regions of the
rows of a data set, the exact coefficients of each, and how well each linear model does; the largest difference between
the linear models and the network's own output is kept as a certificate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, Rng, any_array, flag, indices, integer
from reluscope._columns import Names, columns_of, strings
from reluscope._doors import door
from reluscope._kernels import kernel
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.local_models import table
from reluscope.local_models._data import (
    Response,
    Scaling,
    as_rows,
    check_beside,
    feature_index,
    in_original_units,
    names_of,
    prepare,
    read,
    result_names,
    results_in_units,
    scaling_of,
    scaling_of_schema,
    weights_of,
)
from reluscope.local_models._decision import with_cutoff
from reluscope.local_models._grouping import Groups, Lookup, Words, group, n_words, pack, spans, unpack
from reluscope.local_models._source import Source, check_scaler, source_of
from reluscope.local_models.table import RegionTable, Rows
from reluscope.network import Network, Pattern, chunks, trace
from reluscope.progress import meter
from reluscope.threads import blas_threads, clean_interrupt, look
from reluscope.workers import jobs_at_hand, on_cluster, run, with_jobs

if TYPE_CHECKING:
    from reluscope.answers.counterfactual import Counterfactuals
    from reluscope.inputs import Law
    from reluscope.local_models.contributions import Contributions
    from reluscope.local_models.coverage import Coverage
    from reluscope.local_models.evaluate import Evaluation
    from reluscope.local_models.explain import Explanation, Margins
    from reluscope.local_models.importance import Importance, PairProfile, Profile
    from reluscope.local_models.inference import Intervals
    from reluscope.local_models.merged import MergedModels
    from reluscope.local_models.outcome import Benchmarks, Drift, Monotonicity, NoiseChange, Outcome
    from reluscope.local_models.portrait import Portrait
    from reluscope.local_models.reasons import Reasons

Index = npt.NDArray[np.int64]

_KEPT_NUMBERS = 1 << 25
"""Coefficients kept in memory (256 MB); beyond, they are computed from the patterns when asked for."""

_MAP_NUMBERS = 1 << 21
"""Numbers in a chunk of affine maps (16 MB)."""

_PART_NUMBERS = 1 << 20
"""Numbers in the part of them that a worker makes at a time."""

_CHUNKS = 8
"""Chunks of rows that a worker takes through the network at a time, in the same arrays."""


@dataclass(frozen=True)
class Certificate:
    """Largest difference between the local models and the network's own output over `rows` rows.

    `relative` divides by the largest output in size (`scale`).

    Attributes
    ----------
    absolute, relative, scale : float
    rows : int
    """

    absolute: float
    relative: float
    scale: float
    rows: int

    def __str__(self) -> str:
        return f"linear models and network differ by at most {self.absolute:.2g} ({self.relative:.2g} relative)"


@dataclass(frozen=True, eq=False, repr=False)
class Unwrapped:
    """A network as the local linear models of the regions that hold data, largest region first.

    Attributes
    ----------
    network : Network
        Its outputs are in the units of the schema. With two classes and two outputs it gives the difference of the two
        logits.
    X : (n, inputs)
        The data.
    response : Response
        What is to be predicted, by number or class.
    feature_names : tuple of str
    output_names : tuple of str
    columns : tuple of str or None
        Names that the columns of data frames must have, in order (None: any).
    weight : (n,) or None
        Weights of the rows.
    scaling : Scaling or None
        How the rows came from features in original units: those of a scaler, or of the schema.
    region : (n,) array
        Region of each row.
    count : (regions,) array
        Rows of each region.
    prediction : (n, outputs) array
        The network's outputs (logits for classes), in the units of the schema.
    certificate : Certificate
        How far linear models and network differ on the rows: rounding only.
    """

    network: Network
    X: Any
    response: Response
    feature_names: Names
    columns: Names | None
    output_names: Names
    weight: FloatArray | None
    scaling: Scaling | None
    region: Index
    count: Index
    prediction: FloatArray
    certificate: Certificate
    _words: Words
    _stored: tuple[FloatArray, FloatArray] | None

    # -- the models ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.count)

    @property
    def task(self) -> str:
        """`"regression"`, `"binary"`, `"multiclass"` or `"none"`."""
        return self.response.task

    @property
    def metric(self) -> str:
        """What `score` measures, higher is better: `"r2"`, `"auc"` or `"accuracy"`."""
        return table.metric_of(self.task, None)

    @cached_property
    def score(self) -> float:
        """The network's score on the data: R², AUC (two classes) or accuracy (more); nan without a response."""
        return table.overall(self.rows, None)

    def patterns(self, regions: Any = None) -> Pattern:
        """Activation patterns of some regions (default: all).

        Parameters
        ----------
        regions : int or sequence of int, optional
            Indices of regions.

        Returns
        -------
        (k, units) array
            For each unit the index of its linear piece, for ReLU 0 (off) or 1 (on).
        """
        return unpack(self.network, self._words if regions is None else self._words[self._which(regions)])

    def maps(self, regions: Any = None, *, units: bool = False) -> tuple[FloatArray, FloatArray]:
        """The linear models `C x + d` of some regions (default: all).

        Parameters
        ----------
        regions : int or sequence of int, optional
            Indices of regions.
        units : bool
            For values `x` in the units of the columns, instead of the numbers that the network takes (`u.X`).

        Returns
        -------
        C : (k, outputs, inputs) array
        d : (k, outputs) array

        Raises
        ------
        InputError
            If these are more than 1 GB of coefficients.
        """
        if flag(units, "units") and self.scaling is not None:
            return self.scaling.model(*self.maps(regions))
        if self._stored is not None:
            rows = slice(None) if regions is None else self._which(regions)
            return self._stored[0][rows], self._stored[1][rows]
        which = np.arange(len(self)) if regions is None else self._which(regions)
        size = len(which) * self.network.n_outputs * self.network.n_inputs
        if size > 4 * _KEPT_NUMBERS:
            raise InputError(
                f"the local models of {len(which):,} regions hold {size:,} coefficients; ask for fewer regions, such "
                "as maps(range(100)), or one output at a time"
            )
        return self.network.output_maps(self.patterns(which))

    @property
    def fits(self) -> bool:
        """Whether the coefficients of all regions fit in memory together (at most 1 GB)."""
        return len(self) * self.network.n_outputs * self.network.n_inputs <= 4 * _KEPT_NUMBERS

    @property
    def coefficients(self) -> FloatArray:
        """Weights of each local model, shape (regions, outputs, inputs), for the numbers that the network takes."""
        return self.maps()[0]

    @property
    def intercepts(self) -> FloatArray:
        """Intercepts of each local model, shape (regions, outputs), for the numbers that the network takes."""
        return self.maps()[1]

    @cached_property
    def centre(self) -> FloatArray:
        """Mean of the rows, shape (inputs,)."""
        return table.weighted_mean(self.X, self.weight)

    @cached_property
    def spread(self) -> FloatArray:
        """Standard deviation of each input over the rows (by weight, if there are weights), shape (inputs,)."""
        return table.weighted_spread(self.X, self.weight, self.centre)

    @cached_property
    def rows(self) -> Rows:
        """The data with their regions, responses and outputs."""
        return Rows(self.X, self.region, self.response, self.prediction, self.weight)

    def find(self, X: npt.ArrayLike) -> Index:
        """Region of each row of `X`.

        Parameters
        ----------
        X : (n, inputs)
            Rows.

        Returns
        -------
        (n,) array
            Indices of regions; -1 where no row of the data lies in the same region.
        """
        return self._assign(self._rows(X))[0]

    # -- tables --------------------------------------------------------------------------------------------------

    @cached_property
    def table(self) -> RegionTable:
        """The region table, `summary()`: global AUC is given for the 100 largest regions."""
        return self.summary()

    def summary(self, *, output: int | None = None, global_regions: int | str = 100, units: bool = True) -> RegionTable:
        """The region table of one output (classes: that class against the others) or of all of them.

        Parameters
        ----------
        output : int, optional
            Index of the output.
        global_regions : int or "all"
            How many of the largest regions have their model scored on all rows (squared errors come for all).
        units : bool
            Coefficients and intercepts for values in the units of the columns; False: for the numbers that the network
            takes, where the schema or a scaler tells the two apart.

        Returns
        -------
        RegionTable
            One row per region, largest first; columns as in `reluscope.local_models.table`.

        Notes
        -----
        Cost: one sort of the rows, plus one pass and one sort for each global AUC.
        """
        if isinstance(global_regions, str) and global_regions == "all":
            global_regions = len(self)
        wanted = integer(global_regions, "global_regions", low=0)
        return table.build(self, self.rows, self._output(output), wanted, flag(units, "units"))

    def global_scores(self, regions: Any, *, output: int | None = None) -> FloatArray:
        """The linear models of some regions scored on all rows.

        Parameters
        ----------
        regions : int or sequence of int
            Indices of regions.
        output : int, optional
            Index of the output (classes: that class against the others).

        Returns
        -------
        (k,) array
            AUC or accuracy, or the mean squared error of numbers (the columns `global_...` of the table).
        """
        which = self._which(regions)
        if self.task == "none":
            raise InputError("global scores need a response; pass y to unwrap")
        one = self._output(output)
        return table.global_scores(self, self.rows, which, 0 if self.network.n_outputs == 1 else one)

    def evaluate(self, X: npt.ArrayLike, y: Any = None, *, sample_weight: Any = None) -> Evaluation:
        """The same regions on new data: counts and scores, and which rows lie in regions without data.

        Parameters
        ----------
        X : (n, inputs)
            New rows.
        y : (n,) or (n, outputs), optional
            Their responses, as for `unwrap`.
        sample_weight : (n,), optional
            Their weights.

        Returns
        -------
        Evaluation
        """
        from reluscope.local_models.evaluate import evaluate

        return evaluate(self, X, y, sample_weight)

    def coverage(
        self,
        X: npt.ArrayLike | None = None,
        *,
        box: Any = None,
        draws: int = 20_000,
        level: float = DEFAULT_LEVEL,
        budget: Any = None,
        rng: Rng = None,
        progress: Any = None,
    ) -> Coverage:
        """How much of the data's box, and of new rows, lies in regions without data.

        Parameters
        ----------
        X : (n, inputs), optional
            New rows.
        box : (lower, upper), optional
            The box; by default the smallest one that holds the data.
        draws : int
            Uniform draws, where volumes cannot be had exactly.
        level : float
            Confidence level of the share that draws give.
        budget : str, optional
            Time for listing the regions of the box (None: "10s").
        rng : None, int, SeedSequence or Generator
            Source of the draws.
        progress : optional
            As for `unwrap`.

        Returns
        -------
        Coverage

        Notes
        -----
        Regions are listed for up to 8 inputs that vary in the box. Their volumes are exact for up to 5; otherwise the
        share of volume comes from `draws` points with a Clopper-Pearson interval.

        Examples
        --------
        >>> import reluscope as rs
        >>> hat = rs.Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, -2.0]], [0.0])])
        >>> u = rs.unwrap(hat, [[-1.0], [2.0]])
        >>> print(u.coverage())
        33 % of the box of the data lies in regions without data; 2 of its 3 regions hold data
        """
        from reluscope.local_models.coverage import coverage

        return coverage(self, X, box=box, draws=draws, level=level, budget=budget, rng=rng, progress=progress)

    # -- explanations and global views ---------------------------------------------------------------------------

    def explain(self, x: npt.ArrayLike | int, *, reference: Any = None) -> Explanation:
        """Exact explanation of one prediction.

        Parameters
        ----------
        x : int or (inputs,)
            Index of a row of the data, or an input.
        reference : optional
            Where path contributions start, as for `contributions`; by default the mean of the data.

        Returns
        -------
        Explanation

        Examples
        --------
        >>> import reluscope as rs
        >>> net = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.5])])  # |x| + 0.5
        >>> e = rs.unwrap(net, [[-2.0], [-1.0], [3.0]]).explain(0)
        >>> e.output, e.contribution, e.d
        (array([2.5]), array([[2.]]), array([0.5]))
        """
        from reluscope.local_models.explain import explain

        return explain(self, x, reference)

    def contributions(
        self, X: npt.ArrayLike | None = None, *, reference: Any = None, groups: Any = "columns", method: str = "path"
    ) -> Contributions:
        """What each feature or group adds to the output of each row, from one common reference.

        Parameters
        ----------
        X : (n, inputs), optional
            Rows; by default the data.
        reference : optional
            Where contributions start: "mean" of the data (the default), "median" (the most frequent level of a
            category), the index of a row of the data, or a row.
        groups : "columns", None or mapping of str to features
            Features that count together: the inputs of each category, none, or those of a mapping.
        method : {"path", "shapley"}
            Along the straight line from the reference, or averaged over all orders of at most 12 features or groups.

        Returns
        -------
        Contributions

        Notes
        -----
        Both are exact: the parts add up to the difference of the network's outputs at the row and at the reference, up
        to rounding. Cost of "path": one linear model for each region that a line meets.

        Examples
        --------
        >>> import reluscope as rs
        >>> net = rs.Network([([[1.0, 1.0]], [-1.0]), ([[1.0]], [0.0])])  # max(x0 + x1 - 1, 0)
        >>> u = rs.unwrap(net, [[0.0, 0.0], [2.0, 1.0]])
        >>> u.contributions(reference=0).parts[1, 0].round(12).tolist()  # the output 2, shared out
        [1.333333333333, 0.666666666667]
        """
        from reluscope.local_models.contributions import contributions

        return contributions(self, X, reference, groups, method)

    def reasons(
        self,
        X: npt.ArrayLike | None = None,
        k: int = 4,
        *,
        adverse: Any = None,
        reference: Any = None,
        groups: Any = "columns",
    ) -> Reasons:
        """Reason codes: the features that move each row most towards the adverse class, from one stated reference.

        Parameters
        ----------
        X : (n, inputs), optional
            Rows; by default the data.
        k : int
            Reasons per row, at most.
        adverse : optional
            The adverse class; by default the last one.
        reference, groups
            As for `contributions`; by default the mean of the data, and the inputs of a category together.

        Returns
        -------
        Reasons

        Raises
        ------
        InputError
            If the network does not decide between classes.

        Examples
        --------
        >>> import reluscope as rs
        >>> net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[2.0, -1.0]], [0.0])])
        >>> u = rs.unwrap(net, [[0.0, 0.0], [2.0, 3.0]], [0, 1], feature_names=["debt", "income"])
        >>> u.reasons(reference=0).words(1)
        ['debt is 2 (reference 0): raises the logit of class 1 by 4']
        """
        from reluscope.local_models.reasons import reasons

        return reasons(self, X, k, adverse, reference, groups)

    def counterfactuals(self, X: npt.ArrayLike | int, **options: Any) -> Counterfactuals:
        """The nearest changes of rows that change their decision, each proved nearest.

        Parameters
        ----------
        X : int, sequence of int, (n, inputs) or a table
            Rows, or indices of rows of the data.
        **options
            Those of `reluscope.counterfactuals`. Here the data give the unit of distance (the standard deviation of
            each column), the bounds, which columns are whole numbers, and points to start from; the result says which
            bounds and steps these are. `bounds={"debt": (-inf, inf)}` and `steps={"debt": 0}` lift them.

        Returns
        -------
        Counterfactuals

        Raises
        ------
        InputError
            If the network does not decide between classes.

        Examples
        --------
        >>> import reluscope as rs
        >>> net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[2.0, -1.0]], [0.0])])
        >>> u = rs.unwrap(net, [[0.5, 1.0], [2.0, 3.0]], [0, 1], feature_names=["debt", "income"])
        >>> found = u.counterfactuals(1)[0][0]
        >>> found.wanted, {name: (old, round(new, 3)) for name, (old, new) in found.changes.items()}
        (0, {'debt': (2.0, 1.5)})
        """
        from reluscope.local_models.reasons import counterfactuals_of

        return counterfactuals_of(self, X, options)

    def margins(self, X: npt.ArrayLike | None = None, *, scaled: bool = False) -> Margins:
        """Distance of each row to the boundary of its region, and the unit that makes this boundary.

        Parameters
        ----------
        X : (n, inputs), optional
            Rows; by default the data.
        scaled : bool
            Measure in standard deviations of each input over the data instead of the units of the inputs.

        Returns
        -------
        Margins

        Notes
        -----
        Cost about `n * units * inputs * width`; memory is bounded by chunks.
        """
        from reluscope.local_models.explain import margins

        spread = self.spread if flag(scaled, "scaled") else None
        return margins(self.network, self.X if X is None else self._rows(X), spread)

    def portrait(self, region: int, features: int = 3) -> Portrait:
        """How the rows of one region differ from all rows; see `portraits`.

        Parameters
        ----------
        region : int
        features : int
            How many.

        Returns
        -------
        Portrait
        """
        from reluscope.local_models.portrait import portraits

        return portraits(self, [integer(region, "region", low=0, high=len(self) - 1)], features)[0]

    def portraits(self, regions: int | Any = 10, features: int = 3) -> list[Portrait]:
        """How the rows of some regions differ from all rows: the features whose means differ most.

        Parameters
        ----------
        regions : int or sequence of int
            How many of the largest regions, or their indices.
        features : int
            Features per region.

        Returns
        -------
        list of Portrait
        """
        from reluscope.local_models.portrait import portraits

        if isinstance(regions, (int, np.integer)):
            return portraits(self, range(min(integer(regions, "regions", low=0), len(self))), features)
        return portraits(self, self._which(regions).tolist(), features)

    def importance(self, *, output: int | None = None, groups: Any = "columns") -> Importance:
        """Importance of each feature, by variance of contributions and by squared coefficients.

        Parameters
        ----------
        output : int, optional
            Index of the output; by default the sum over outputs.
        groups : "columns", None or mapping of str to features
            Features that count together: the inputs of each category, none, or those of a mapping. Contributions of a
            group are added up before their variance is taken.

        Returns
        -------
        Importance
        """
        from reluscope.local_models.importance import importance

        return importance(self, self._output(output), groups)

    def profile(self, feature: Any, *, output: int = 0) -> Profile:
        """Contribution of one feature in every row, and its local coefficient.

        Parameters
        ----------
        feature : int or str
            Index or name.
        output : int
            Index of the output.

        Returns
        -------
        Profile
        """
        from reluscope.local_models.importance import profile

        return profile(self, feature, output)

    def pair(self, first: Any, second: Any, *, output: int = 0, bins: int = 12) -> PairProfile:
        """Mean joint contribution of two features on a grid of their quantiles.

        Parameters
        ----------
        first, second : int or str
            Indices or names of features.
        output : int
            Index of the output.
        bins : int
            Bins per feature.

        Returns
        -------
        PairProfile
        """
        from reluscope.local_models.importance import pair

        return pair(self, first, second, output, bins)

    def intervals(
        self,
        region: int,
        *,
        output: int | None = None,
        draws: int = 500,
        penalty: float = 0.0,
        method: str = "wald",
        level: float = DEFAULT_LEVEL,
        rng: Rng = None,
    ) -> Intervals:
        """Intervals for the coefficients of a linear model refitted to a region's rows, in the units of the columns.

        Parameters
        ----------
        region : int
            Index of the region.
        output : int, optional
            Index of the output; needed if there are several.
        draws : int
            Bootstrap samples.
        penalty : float
            Ridge of the refit; needed where the rows alone give no finite estimate.
        method : {"wald", "bootstrap"}
            Normal approximation, or quantiles over resampled rows.
        level : float
            Confidence level.
        rng : None, int, SeedSequence or Generator
            Source of the bootstrap samples.

        Returns
        -------
        Intervals

        Raises
        ------
        InputError
            If the rows are too few or of one class, and `penalty` is 0.

        Notes
        -----
        Formulas, and what is not accounted for, are in `reluscope.local_models.inference`.
        """
        from reluscope.local_models.inference import of_rows

        r = integer(region, "region", low=0, high=len(self) - 1)
        one = self._output(output)
        if one is None and self.network.n_outputs > 1:
            raise InputError(f"output must be given, 0 to {self.network.n_outputs - 1}: the network has several")
        one = one or 0
        C, d = self.maps([r], units=True)
        return of_rows(
            self, np.flatnonzero(self.region == r), one, C[0, one], d[0, one],
            draws=draws, penalty=penalty, method=method, level=level, rng=rng,
        )  # fmt: skip

    # -- outcome analysis ----------------------------------------------------------------------------------------

    def outcome(
        self,
        X: Any = None,
        y: Any = None,
        *,
        sample_weight: Any = None,
        segments: Any = None,
        clusters: MergedModels | None = None,
        regions: int = 20,
        min_rows: int = 100,
        cutoff: float | None = None,
    ) -> Outcome:
        """How well the probability ranks and is calibrated: all rows, by segment, by region; training beside test rows.

        Parameters
        ----------
        X : (n, inputs), optional
            Test rows.
        y : (n,), optional
            Their labels.
        sample_weight : (n,), optional
            Their weights.
        segments : str or sequence of str, optional
            Columns whose levels, values or fifths are groups.
        clusters : MergedModels, optional
            `u.merge(...)`, whose clusters are groups too.
        regions : int
            How many of the largest regions are groups.
        min_rows : int
            Groups with fewer rows of the data are left out.
        cutoff : float, optional
            A probability; by default that of the schema, or one half.

        Returns
        -------
        Outcome
            AUC, Gini, KS, Brier score, calibration; `.weak()`, `.calibration(group)`.

        Raises
        ------
        InputError
            If the response is not of two classes.

        Examples
        --------
        >>> import numpy as np, reluscope as rs
        >>> net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [-1.0])])
        >>> u = rs.unwrap(net, np.arange(8.0)[:, None], [0, 0, 1, 0, 1, 0, 1, 1])
        >>> line = u.outcome(min_rows=2)["all"]
        >>> line["auc"], line["ks"]
        (0.8125, 0.5)
        """
        from reluscope.local_models.outcome import outcome

        return outcome(
            self, X, y, sample_weight=sample_weight, segments=segments, clusters=clusters, regions=regions,
            min_rows=min_rows, cutoff=cutoff,
        )  # fmt: skip

    def drift(
        self,
        X: Any,
        *,
        sample_weight: Any = None,
        bins: int = 10,
        min_rows: int = 50,
        level: float = DEFAULT_LEVEL,
    ) -> Drift:
        """How new rows differ from the data: PSI of the output, of each column, and of the shares of regions, each with
        what it would be without drift.

        Parameters
        ----------
        X : (n, inputs)
            New rows. Levels that the model never saw are counted, not refused.
        sample_weight : (n,), optional
            How much each new row counts; 1 by default. The rows of the data count by their own weights, if they have
            any. Limits are for as many rows as the weights are worth, `sum(w)^2 / sum(w^2)`.
        bins : int
            Bins of equal numbers of rows of the data.
        min_rows : int
            Regions with fewer rows of the data, and regions without data, count as one.
        level : float
            Probability with which a PSI without drift stays below its limit.

        Returns
        -------
        Drift
        """
        from reluscope.local_models.outcome import drift

        return drift(self, X, sample_weight=sample_weight, bins=bins, min_rows=min_rows, level=level)

    def benchmarks(self, X: Any = None, y: Any = None, *, sample_weight: Any = None, rng: Rng = None) -> Benchmarks:
        """The network beside a logistic regression and boosted trees of scikit-learn, fitted to the same rows.

        Parameters
        ----------
        X : (n, inputs), optional
            Test rows.
        y : (n,), optional
            Their labels.
        sample_weight : (n,), optional
            Their weights.
        rng : None, int, SeedSequence or Generator
            Seed of the trees (None: 0).

        Returns
        -------
        Benchmarks
        """
        from reluscope.local_models.outcome import benchmarks

        return benchmarks(self, X, y, sample_weight=sample_weight, rng=rng)

    def noise(
        self,
        X: Any = None,
        *,
        percent: float = 5.0,
        draws: int = 100,
        level: float = DEFAULT_LEVEL,
        rng: Rng = None,
    ) -> NoiseChange:
        """How likely normal noise on every number changes the decision: by row, and on average.

        Parameters
        ----------
        X : (n, inputs), optional
            Rows; by default the data.
        percent : float
            Standard deviation of the noise, in percent of that of each input over the data. Categories stay.
        draws : int
            Draws of noise for each row.
        level : float
            Confidence level.
        rng : None, int, SeedSequence or Generator
            Source of the noise.

        Returns
        -------
        NoiseChange
        """
        from reluscope.local_models.outcome import noise

        return noise(self, X, percent=percent, draws=draws, level=level, rng=rng)

    def monotonicity(
        self,
        expected: Any = None,
        *,
        output: int = 0,
        groups: str | None = "columns",
        law: Law | None = None,
        draws: int = 20_000,
        level: float = DEFAULT_LEVEL,
        rng: Rng = None,
    ) -> Monotonicity:
        """By feature: the share of rows and regions in which the output rises or falls with it, exact on regions.

        Parameters
        ----------
        expected : mapping of feature to "up" or "down", optional
            Signs that are wanted; `wrong` is the share of rows with the other one.
        output : int
            Index of the output.
        groups : "columns" or None
            Whether categories of several inputs, which have no direction, are left out; None has all inputs one by one.
        law : Law, optional
            A law of the inputs, such as `reluscope.fit(table, schema)`: adds the share of its mass on which the output
            rises and falls, from draws, with exact binomial intervals.
        draws : int
            How many.
        level : float
            Confidence level of those intervals, each by itself.
        rng : None, int, SeedSequence or Generator
            Source of the draws.

        Returns
        -------
        Monotonicity

        Notes
        -----
        For one feature, exact or proved answers under a law are those of `reluscope.monotone`.
        """
        from reluscope.local_models.outcome import monotonicity

        return monotonicity(self, expected, output, groups, law, draws, level, rng)

    # -- simpler models ------------------------------------------------------------------------------------------

    def merge(self, n: int | None = None, **options: Any) -> MergedModels:
        """Fewer linear models: neighbouring regions joined, one model refitted in each cluster.

        Parameters
        ----------
        n : int, optional
            Number of models; by default cross-validation chooses it: the smallest number within one standard error of
            the best.
        **options
            `penalty=1.0`, the ridge of the refits towards the one model of all rows (0: maximum likelihood);
            `most=30`, the largest number that is tried; `folds=5` and `repeats=5` of the cross-validation, and `rng=0`,
            which deals the rows to them; `adjacency="auto"`, `neighbours=10`, `breadth=0.1`, `rounds=10` for which
            regions are joined; `budget`, `jobs`, `progress`. `reluscope.local_models.merge.merge` says more of each.

        Returns
        -------
        MergedModels

        Notes
        -----
        Two calls on the same data give the same models; another `rng` shows how far the choice of their number depends
        on the deal. The last results are kept: the same call again costs nothing.
        """
        from reluscope.local_models.merge import merge

        return merge(self, n, **options)

    def prune(self, min_count: int, **options: Any) -> MergedModels:
        """Regions with fewer rows than `min_count` take the linear model of a larger one, where it costs them least.

        Parameters
        ----------
        min_count : int
            Rows from which on a region keeps its own model.
        **options
            Those of `reluscope.local_models.merge.prune`.

        Returns
        -------
        MergedModels
        """
        from reluscope.local_models.merge import prune

        return prune(self, min_count, **options)

    def flatten(self, n: int | None = None, **options: Any) -> Network:
        """A network with one hidden layer that starts from `merge(n)`; `merge(n, ...).flatten()` has other options.

        Parameters
        ----------
        n : int, optional
            Number of merged models; by default cross-validation chooses it.
        **options
            Those of `reluscope.local_models.flatten.flatten`.

        Returns
        -------
        Network
        """
        from reluscope.local_models.flatten import flatten

        return flatten(self.merge(n), **options)

    # -- out -----------------------------------------------------------------------------------------------------

    def plot(self, kind: str | None = None, ax: Any = None, **options: Any) -> Any:
        """Draw a picture.

        Parameters
        ----------
        kind : str, optional
            "regions", "parallel", "violin", "importance", "profile", "partial", "pair", "performance", "bubble",
            "models" (the line of each local model, for two inputs) or "instances" (some rows of the largest regions);
            by default "regions" for two inputs, else "importance".
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **options
            Those of the function in `reluscope.plot.local_models.KINDS`.

        Returns
        -------
        matplotlib Axes
        """
        return door("Unwrapped.plot")(self, kind, ax, **options)

    def to_pandas(self) -> Any:
        """The region table as a pandas DataFrame."""
        return self.table.to_pandas()

    def describe(self) -> dict[str, Any]:
        """The main numbers by name, fit for JSON."""
        facts: dict[str, Any] = {
            "rows": len(self.region),
            "regions": len(self),
            "task": self.task,
            "largest_region": int(self.count[0]),
            "single_row_regions": int((self.count == 1).sum()),
            "single_row_share": float((self.count == 1).mean()),
            "certificate": self.certificate.relative,
        }
        if self.task != "none":
            facts[self.metric] = self.score
        if self.response.code is not None:
            facts["single_class_share"] = float(table.single_class(self.region, self.response.code, len(self)).mean())
        return facts

    def __repr__(self) -> str:
        score = "" if self.task == "none" else f", {self.metric} {self.score:.4f}"
        alone = int((self.count == 1).sum())
        single = f" ({alone:,} of a single row)" if alone else ""
        where = f"{len(self.region):,} rows in {len(self):,} regions{single}"
        return f"Unwrapped({where} of {self.network!r}, {self.task}{score})"

    # -- inside --------------------------------------------------------------------------------------------------

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self._words)

    @property
    def _names(self) -> tuple[Names, ...]:
        """What the columns of a data frame may be called; nothing when no names are known."""
        return () if self.columns is None else (self.columns, self.feature_names)

    def _rows(self, X: Any, name: str = "X") -> Any:
        """New rows, named (if they are) as the old ones."""
        return as_rows(X, self.network, name, self._names)

    def _row(self, x: Any, name: str) -> FloatArray:
        """One row, as an array or as a row of a table."""
        net = self.network
        if columns_of(x) is not None and self._names:
            rows = as_rows(x, net, name, self._names)
        else:
            given = any_array(x, name, "one row of numbers")
            rows = as_rows(given[None] if given.shape in ((net.n_inputs,), net.input_shape) else given, net, name)
        if len(rows) > 1:
            raise InputError(f"{name} must be one row (or the index of one), got {len(rows):,} rows")
        return read(rows, slice(1), name)[0]

    def _assign(self, X: Any) -> tuple[Index, FloatArray]:
        """Region (-1: unknown) and output of each row."""
        net = self.network
        region = np.empty(len(X), dtype=np.int64)
        outputs = np.empty((len(X), net.n_outputs))
        with blas_threads(max(net.widths)):
            for part in chunks(net, len(X)):
                x = read(X, part)
                pattern = np.empty((len(x), net.n_units), dtype=np.uint8)
                outputs[part] = net.layers[-1].affine(trace(net, x, pattern))
                region[part] = self._lookup.find(pack(net, pattern))
        return region, outputs

    @cached_property
    def _memory(self) -> dict[str, dict[Any, Any]]:
        """Costly results by kind and arguments; see `merge`."""
        return {}

    def _which(self, regions: Any) -> Index:
        """Indices of regions, from one or several."""
        if isinstance(regions, (int, np.integer)):
            regions = [integer(regions, "regions", low=0, high=len(self) - 1)]
        return indices(regions, "regions", len(self))

    def _output(self, output: int | None) -> int | None:
        return None if output is None else integer(output, "output", low=0, high=self.network.n_outputs - 1)

    def _feature(self, feature: Any, name: str = "feature") -> int:
        return feature_index(feature, self.feature_names, name)

    def _map_chunks(self) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """The local models a part of the regions at a time."""
        for part in spans(len(self), max(1, _MAP_NUMBERS // (self.network.n_outputs * self.network.n_inputs))):
            yield part, *self.maps(np.arange(part.start, part.stop))


@clean_interrupt()
@with_jobs
def unwrap(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    feature_names: Any = None,
    sample_weight: Any = None,
    task: str = "auto",
    classes: Any = None,
    scaler: Any = None,
    cutoff: float | None = None,
    jobs: Any = None,
    progress: Any = None,
) -> Unwrapped:
    """The network as the local linear models of the regions that hold rows of `X`.

    Parameters
    ----------
    model : Network, or anything `reluscope.load` takes
        A network with a schema, or a scikit-learn model, brings its classes and the names of its columns along: the
        columns of a data frame are taken by name, and refused where names are missing or not known.
    X : (n, inputs), or a table
        Rows of the numbers that the network takes (a numpy memory map is read in chunks), or a data frame in the units
        of its columns.
    y : (n,) or (n, outputs), optional
        A number per output, in the output's unit, or a class label per row.
    feature_names : sequence of str, optional
        Names of the inputs.
    sample_weight : (n,), optional
        Weights of the rows.
    task : {"auto", "regression", "binary", "multiclass"}
        What `y` is.
    classes : sequence, optional
        The labels in the order of the outputs, when they are not the sorted labels.
    scaler : fitted scikit-learn scaler or (centre, scale), optional
        What turned original features into `X` (an array then), for answers in original units. Tables that are
        passed later, to `explain` or `evaluate`, are in original units and are scaled; arrays are scaled already. A
        pipeline that scales by itself takes original features and no scaler.
    cutoff : float, optional
        Of two classes: the probability of the second one from which on it is decided for. By default that of the
        model's schema, else one half. Outcome, explanations, counterfactuals and noise go by it.
    jobs : int, optional
        Workers that share the rows, -1 for all cores; the same result for any number of them.
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    Unwrapped

    Raises
    ------
    InputError
        If shapes, labels or column names do not fit the network.

    Notes
    -----
    Cost: one forward pass over the rows and one backward pass over the regions; memory about `n (inputs + outputs) +
    regions * inputs * outputs` numbers. Guarantee: every region with a row in it is found, and `certificate` bounds the
    rounding error of all linear models on the rows themselves.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])  # the absolute value
    >>> u = rs.unwrap(net, [[-2.0], [-1.0], [3.0]], [2.0, 1.0, 3.5])
    >>> u.count.tolist(), u.coefficients[:, 0, 0].tolist()
    ([2, 1], [-1.0, 1.0])
    >>> u.metric, round(u.score, 4)
    ('r2', 0.9211)
    """
    source = source_of(model)
    check_scaler(source, scaler)
    net = source.network
    scaling = scaling_of(scaler, net.n_inputs)
    if scaling is not None and not scaling.identity:
        feature_names = _names_with_scaler(X, feature_names, scaler, source)
    rows = as_rows(X, net)
    check_beside(X, y, sample_weight)
    n = len(rows)
    names, columns = names_of(X, feature_names, source.columns, net.n_inputs, source.inputs)
    if source.columns is None and columns is not None and len(set(columns)) == len(columns):
        net = net.with_schema(columns=columns)  # so that tables are read by name from here on
    if scaling is not None and not scaling.identity:
        net = in_original_units(net, scaling)  # and in the units that people have them in
    elif scaling is None:
        scaling = scaling_of_schema(net)
    net, response = prepare(results_in_units(net), y, n, task, classes, source.classes)
    net = results_in_units(net, response)
    if cutoff is not None:
        net = with_cutoff(net, response.classes, cutoff)
    weight = weights_of(sample_weight, n)
    outputs = np.empty((n, net.n_outputs))
    words = np.empty((n, n_words(net)), dtype=np.uint64)
    with meter(progress, "unwrap") as report, blas_threads(max(net.widths)):
        parts = list(spans(n, _CHUNKS * next(chunks(net, n)).stop))
        # Workers in threads put what they make where it belongs; those of a cluster send it.
        shared = (net, rows, None if on_cluster() else (words, outputs))
        for part, made in zip(parts, run(_traced, parts, shared=shared, jobs=jobs_at_hand()), strict=True):
            if made is not None:
                words[part], outputs[part] = made
            report(part.stop, f"{part.stop:,} of {n:,} rows")
        groups = group(words)
        region, words = groups.member, words[groups.first]
        count = np.bincount(region, minlength=len(words))
        report(n, f"{len(words):,} regions")
        certificate, stored = _local_maps(net, rows, groups, count, words, outputs, report)
    output_names = tuple(map(str, response.classes)) if response.task == "multiclass" else result_names(net)
    named = (names, columns, output_names)
    return Unwrapped(net, rows, response, *named, weight, scaling, region, count, outputs, certificate, words, stored)


def _names_with_scaler(X: Any, feature_names: Any, scaler: Any, source: Source) -> Any:
    """Names of the inputs beside a scaler: as given, else those it was fitted with, else x0, x1, ... (so that tables
    are never taken for scaled numbers). A table as `X` could hold either kind of numbers.
    """
    if columns_of(X) is not None:
        raise InputError(
            "X must be an array of scaled rows when a scaler is given, got a table: tables are in original units, as "
            "they are later in explain and evaluate; pass scaler.transform(X) as an array, or X.to_numpy() if X is "
            "scaled already"
        )
    n = source.network.n_inputs
    if feature_names is not None:
        return feature_names
    plain = [f"x{k}" for k in range(n)]
    known = strings(getattr(scaler, "feature_names_in_", None))
    if source.columns is not None and list(source.columns) != plain:
        return None
    return list(known) if known is not None and len(known) == n else plain


def _local_maps(
    net: Network, X: Any, groups: Groups, count: Index, words: Words, outputs: FloatArray, report: Any
) -> tuple[Certificate, tuple[FloatArray, FloatArray] | None]:
    """Local models region by region, compared with the network on every row; kept when they are not too many."""
    n_regions, m, k = len(count), net.n_outputs, net.n_inputs
    keep = n_regions * m * k <= _KEPT_NUMBERS
    stored = (np.empty((n_regions, m, k)), np.empty((n_regions, m))) if keep else None
    ends = np.concatenate([[0], np.cumsum(count)])
    worst = 0.0
    parts = list(spans(n_regions, max(1, _PART_NUMBERS // (m * k))))
    shared = (net, X, groups.member, words, outputs, groups.rows, ends, None if on_cluster() else stored)
    for part, (maps, off) in zip(parts, run(_maps_of, parts, shared=shared, jobs=jobs_at_hand()), strict=True):
        if stored is not None and maps is not None:
            stored[0][part], stored[1][part] = maps
        worst = max(worst, off)
        report(part.stop, f"{part.stop:,} of {n_regions:,} local models")
    scale = float(np.abs(outputs).max())
    return Certificate(worst, worst / scale if scale > 0 else worst, scale, len(groups.member)), stored


def _traced(
    part: slice, net: Network, rows: Any, stored: tuple[Words, FloatArray] | None
) -> tuple[Words, FloatArray] | None:
    """Packed patterns and outputs of some rows; None once they are stored."""
    n = part.stop - part.start
    if stored is None:
        words, outputs = np.empty((n, n_words(net)), dtype=np.uint64), np.empty((n, net.n_outputs))
    else:
        words, outputs = stored[0][part], stored[1][part]
    parts = list(chunks(net, n))
    pattern = np.empty((parts[0].stop, net.n_units), dtype=np.uint8)
    room = [np.empty((parts[0].stop, layer.width)) for layer in net.hidden]
    for some in parts:
        look()
        x = read(rows, slice(part.start + some.start, part.start + some.stop))
        z = trace(net, x, pattern[: len(x)], room)
        words[some] = pack(net, pattern[: len(x)])
        net.layers[-1].affine(z, out=outputs[some])
    return (words, outputs) if stored is None else None


@kernel
def _farthest(C, d, X, rows, region, start, outputs):  # type: ignore[no-untyped-def]
    """The largest difference between the outputs of rows and the local models of their regions."""
    worst = 0.0
    for i in range(len(rows)):
        r = rows[i]
        a = region[r] - start
        for o in range(d.shape[1]):
            total = 0.0
            for j in range(X.shape[1]):
                total += C[a, o, j] * X[i, j]
            off = abs(total + d[a, o] - outputs[r, o])
            if not off <= worst:
                worst = off
    return worst


def _maps_of(
    part: slice,
    net: Network,
    X: Any,
    region: Index,
    words: Words,
    outputs: FloatArray,
    order: Index,
    ends: Index,
    stored: tuple[FloatArray, FloatArray] | None,
) -> tuple[tuple[FloatArray, FloatArray] | None, float]:
    """Local models of some regions (None once they are stored), and how far they are from the network on the rows
    there, at the most.
    """
    look()
    m, k = net.n_outputs, net.n_inputs
    C, d = net.output_maps(unpack(net, words[part]))
    worst = 0.0
    rows = order[ends[part.start] : ends[part.stop]]
    if isinstance(X, np.memmap):  # in the order of the file
        rows = np.sort(rows)
    for some in spans(len(rows), max(1, _MAP_NUMBERS // (m * k))):
        worst = max(worst, _farthest(C, d, read(X, rows[some]), rows[some], region, part.start, outputs))
    if stored is None:
        return (C, d), worst
    stored[0][part], stored[1][part] = C, d
    return None, worst
