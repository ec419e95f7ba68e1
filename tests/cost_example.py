"""Servers so simple that every price can be worked out by hand.

A pass of the target costs 10 and 1 for each row, one of the draft 1 and nothing more.
"""

from eagle3.cost_model import CostModel, LinearCost
from eagle3.widgets import Server

TARGET, DRAFT = LinearCost(10.0, 1.0, 0.0), LinearCost(1.0, 0.0, 0.0)
MODEL = CostModel(TARGET, DRAFT, DRAFT)
POINTS = {"EAGLE": ([2, 8], [1.4, 1.2]), "EAGLE-3": ([2, 8], [1.8, 1.6])}
SERVERS = {
    "small": Server(MODEL, "Table 0", POINTS, length=2, alpha=50),
    "bare <b>": Server(MODEL, length=3, alpha=80),
}
