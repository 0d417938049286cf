#!/bin/bash
# The bucket for projection states that outgrow a row. The tables are fencepost's business: it verifies what it makes.
set -eu
awslocal s3api head-bucket --bucket sekiban-snapshots 2>/dev/null || awslocal s3 mb s3://sekiban-snapshots
