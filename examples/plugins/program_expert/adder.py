"""Adds up the whole numbers on its standard input: right about sums, and about nothing else."""

import re
import sys

if __name__ == "__main__":
    sys.stdout.write(str(sum(map(int, re.findall(r"\d+", sys.stdin.read())))))
