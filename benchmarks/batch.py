"""Pattern and output map of 100,000 rows through 20-100-100-100-1, as a multiple of one plain numpy forward pass."""

import numpy as np
from side_by_side import cpu_seconds, random_net
from threadpoolctl import threadpool_limits

ROWS, WIDTHS = 100_000, (20, 100, 100, 100, 1)


def main() -> None:
    net = random_net(WIDTHS)
    X = np.random.default_rng(0).normal(size=(ROWS, WIDTHS[0]))
    weights = [(layer.weight.T.copy(), layer.bias) for layer in net.layers]

    def plain():
        z = X
        for W, b in weights[:-1]:
            z = np.maximum(z @ W + b, 0)
        return z @ weights[-1][0] + weights[-1][1]

    with threadpool_limits(1):
        base, expected = cpu_seconds(plain, 5)
        ours, maps = cpu_seconds(lambda: net.local(X), 5)
    value = np.einsum("nij,nj->ni", maps.C, X) + maps.d
    print(f"plain forward pass       {base:.3f} s")
    print(f"patterns and local maps  {ours:.3f} s = {ours / base:.2f} forward passes (target: at most 4)")
    print(f"largest difference       {np.abs(value - expected).max():.1e}")


if __name__ == "__main__":
    main()
