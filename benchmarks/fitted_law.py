"""A law fitted to one half of the Taiwan credit data against the rows of the other half.

    RELUSCOPE_DATA=folder python benchmarks/fitted_law.py [splits]

For two networks and two events: the probability under the law (400,000 draws, standard error 0.07 points), the share of
the rows that it was fitted to, and of those held out, in percent. The halves differ from one another by chance; that
difference is printed too, for it is the best that any law can do.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import reluscope as rs

LEVELS = ["SEX", "EDUCATION", "MARRIAGE"]


def main() -> None:
    """Train, fit, compare, print."""
    splits = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    warnings.simplefilter("ignore")
    file = Path(os.environ["RELUSCOPE_DATA"]) / "taiwan_credit" / "default_of_credit_card_clients.csv.gz"
    table = pd.read_csv(file).drop(columns="ID")
    y = table.pop("default payment next month")
    numbers = [c for c in table if c not in LEVELS]
    for hidden in ((16, 8), (64, 32)):
        columns = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), LEVELS), (StandardScaler(), numbers), sparse_threshold=0
        )
        settings = {"alpha": 0.01, "learning_rate_init": 0.003, "early_stopping": True, "n_iter_no_change": 8}
        model = make_pipeline(columns, MLPClassifier(hidden, max_iter=60, random_state=0, **settings))
        net = rs.load(model.fit(table[:21000], y[:21000])).with_schema(outputs="PD", cutoff=0.2)
        for rows in (table[21000:], table):
            for seed in range(splits):
                mine, other = train_test_split(rows, test_size=0.5, random_state=seed)
                start = time.process_time()
                law = rs.fit(mine, net.schema)
                cpu = time.process_time() - start
                drawn = law.sample(400_000, seed)
                for text in ("PD > 0.2", "PD > 0.5"):
                    event = rs.event(text, net.n_inputs, 1, net=net)
                    own, new = (
                        100 * event.holds(net, net.schema.encode(part, quiet=True)).mean() for part in (mine, other)
                    )
                    p = 100 * event.holds(net, drawn).mean()
                    print(
                        f"{hidden} {len(mine):,} rows, split {seed}, {text}: law {p:.2f}, its rows {own:.2f} "
                        f"({p - own:+.2f}), held out {new:.2f} ({p - new:+.2f}; halves {own - new:+.2f}), {cpu:.1f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
