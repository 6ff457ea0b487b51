"""What the exit code of the command says; a wrong use of it is 2, as argparse has it."""

DONE, FAILED, UNKNOWN_ID, BUSY, DECLINED, PARTIAL, INTERRUPTED = 0, 1, 3, 4, 5, 6, 130
