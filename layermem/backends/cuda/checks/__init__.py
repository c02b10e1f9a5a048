"""Runs each kernel of a step once on a new GPU, before the first plan.

checked.py         records of GPUs whose kernels were checked, and the check before a plan
recorded.py selftest.py   which families a step launches; the process that checks kernels beside the reference
check.py           products of whole numbers, computed naively and compared: what checks all others on a GPU
"""
