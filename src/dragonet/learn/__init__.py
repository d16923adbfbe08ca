"""Groups to better weights: advantages, losses, the optimizer step, the one training loop, and held-out evaluation.

Losses never see text and estimators never see tensors. Nothing is imported here, so that a part without torch, such as
an estimator, can be had without it.
"""
