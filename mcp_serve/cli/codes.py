"""What the exit code of the command says; of a wrong use it is the one that argparse has."""

DONE, FAILED, USAGE, UNKNOWN_ID, BUSY, DECLINED, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
