"""The commands of the shell, one module each: `add(commands)` declares its options, `run(options)` does the work.

These modules import nothing heavy at their top, so `reluscope --help` is quick. `run` returns the exit code: 0 done,
1 a condition that was asked for does not hold.
"""
