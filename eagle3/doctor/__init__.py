"""Why is acceptance low? `python -m eagle3 doctor`, and the same as functions.

- `environment`: is the installation sound?
- `files`: load a draft; a refusal becomes a finding with its cause
- `evidence`: the target's answers, and how a draft foretells them
- `wiring`: one diagnosis for each part of the draft
- `diagnose`: all of them on a draft in memory
- `report`: the table
"""

from eagle3.doctor.diagnose import diagnose
from eagle3.doctor.evidence import answers
from eagle3.doctor.finding import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "answers", "diagnose"]
