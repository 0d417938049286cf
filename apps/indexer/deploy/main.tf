# The indexer of fencepost's streams mode as a Lambda function, rung by the table's stream. The same as template.yaml beside it; `check` compares them.
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.32"
    }
  }
}

variable "name" {
  description = "Of the function, and the beginning of everything else's name"
  type        = string
  default     = "fencepost-indexer"
}

variable "table" {
  description = "The log, such as orders"
  type        = string
}

variable "side_table" {
  description = "The side table, such as orders-side"
  type        = string
}

variable "namespace" {
  description = "Any one namespace of the table in streams mode; the index is for all of them, and its lease lies in this one"
  type        = string
  default     = "main"
}

variable "stream_arn" {
  description = "The log's stream (stream_arn of aws_dynamodb_table)"
  type        = string
}

variable "archive" {
  description = "The archive with the file bootstrap in it"
  type        = string
}

variable "kms_key_arn" {
  description = "The tables' key, where they have one of their own"
  type        = string
  default     = ""
}

variable "alarm_topic_arn" {
  description = "An SNS topic that hears the alarms"
  type        = string
  default     = ""
}

variable "look" {
  description = "How often it is rung though nothing was appended, so that an idle day is not taken for a loss; empty for never"
  type        = string
  default     = "rate(12 hours)"
}

data "aws_region" "current" {}
data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}

locals {
  place         = "${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}"
  tables        = "arn:${data.aws_partition.current.partition}:dynamodb:${local.place}:table"
  alarm_actions = var.alarm_topic_arn == "" ? [] : [var.alarm_topic_arn]
}

resource "aws_cloudwatch_log_group" "indexer" {
  name              = "/aws/lambda/${var.name}"
  retention_in_days = 30
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "indexer" {
  # What `fencepost init --print iam` gives the indexer: it reads the log, and nobody but the writers puts to it.
  statement {
    sid       = "Log"
    actions   = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:DescribeTable"]
    resources = ["${local.tables}/${var.table}"]
  }
  # ListStreams is for the event source, which works in the name of this role.
  statement {
    sid       = "Stream"
    actions   = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"]
    resources = ["${local.tables}/${var.table}/stream/*"]
  }
  # Epochs, and the lease.
  statement {
    sid       = "Side"
    actions   = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:DescribeTable", "dynamodb:PutItem"]
    resources = ["${local.tables}/${var.side_table}"]
  }
  # Metrics are lines in the log: no right of their own.
  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.indexer.arn}:*"]
  }
}

data "aws_iam_policy_document" "key" {
  statement {
    sid       = "Key"
    actions   = ["kms:Decrypt", "kms:DescribeKey"]
    resources = [var.kms_key_arn]
  }
}

resource "aws_iam_role" "indexer" {
  name               = "${var.name}-${data.aws_region.current.name}"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "indexer" {
  name   = "indexer"
  role   = aws_iam_role.indexer.id
  policy = data.aws_iam_policy_document.indexer.json
}

resource "aws_iam_role_policy" "key" {
  count  = var.kms_key_arn == "" ? 0 : 1
  name   = "key"
  role   = aws_iam_role.indexer.id
  policy = data.aws_iam_policy_document.key.json
}

resource "aws_lambda_function" "indexer" {
  function_name    = var.name
  description      = "Builds the index of streams mode whenever the stream rings"
  runtime          = "provided.al2023"
  architectures    = ["arm64"]
  handler          = "bootstrap"
  memory_size      = 256
  # It stops two seconds before this and is rung again, so the number is no limit to a backlog.
  timeout          = 120
  role             = aws_iam_role.indexer.arn
  filename         = var.archive
  source_code_hash = filebase64sha256(var.archive)

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.indexer.name
  }
  environment {
    variables = {
      FENCEPOST_URL = "dynamodb://${data.aws_region.current.name}/${var.table}?namespace=${var.namespace}&side=${var.side_table}"
    }
  }
  depends_on = [aws_iam_role_policy.indexer]
}

# Rings, and does not feed: the function reads the stream itself, and never looks into a record. So no record can fail, and nothing lies
# behind one that would not be read meanwhile; what fails is a missing right or a service that is away, and skipping records heals
# neither. A ring is therefore repeated for as long as its record lives (-1: until the stream forgets it, after 24 hours). A limit would
# only turn an outage into a ring that is lost, and commits that wait for the next append.
resource "aws_lambda_event_source_mapping" "rings" {
  function_name    = aws_lambda_function.indexer.arn
  event_source_arn = var.stream_arn
  # LATEST would leave out what is appended while the mapping comes to life.
  starting_position = "TRIM_HORIZON"
  # Few rings for many records: a batch is one ring, whatever is in it. A second of waiting keeps them apart under load.
  batch_size                         = 1000
  maximum_batching_window_in_seconds = 1
  # Two at once for one shard would find the same lease.
  parallelization_factor        = 1
  maximum_retry_attempts        = -1
  maximum_record_age_in_seconds = -1
  # Half a batch rings as loud as a whole one. There is no destination for failures either: nothing is in a ring that is not in the stream.
  bisect_batch_on_function_error = false
  # A ring whose time was up names its first record, and is repeated without being an error: the alarm on errors stays for errors.
  function_response_types = ["ReportBatchItemFailures"]

  filter_criteria {
    filter {
      pattern = "{\"eventName\":[\"INSERT\"],\"dynamodb\":{\"Keys\":{\"p\":{\"S\":[{\"prefix\":\"t/\"},{\"prefix\":\"u/\"},{\"prefix\":\"y/\"}]}}}}"
    }
  }
}

# The stream forgets after 24 hours. A table that nobody writes to for longer does not ring, and then nothing could tell an idle day from a
# lost one; twice a day somebody looks, and says in the index that nothing was unread.
resource "aws_cloudwatch_event_rule" "look" {
  count               = var.look == "" ? 0 : 1
  name                = "${var.name}-look"
  description         = "Looks at the stream though nothing was appended"
  schedule_expression = var.look
}

resource "aws_cloudwatch_event_target" "look" {
  count = var.look == "" ? 0 : 1
  rule  = aws_cloudwatch_event_rule.look[0].name
  arn   = aws_lambda_function.indexer.arn
  input = "{}"
}

resource "aws_lambda_permission" "look" {
  count         = var.look == "" ? 0 : 1
  function_name = aws_lambda_function.indexer.function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.look[0].arn
}

resource "aws_cloudwatch_metric_alarm" "iterator_age" {
  alarm_name          = "${var.name}-iterator-age"
  alarm_description   = "Rings are answered late or not at all; the stream forgets after 24 hours"
  namespace           = "AWS/Lambda"
  metric_name         = "IteratorAge"
  dimensions          = { FunctionName = var.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 5
  comparison_operator = "GreaterThanThreshold"
  threshold           = 300000
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  alarm_name          = "${var.name}-errors"
  alarm_description   = "Rings fail; the log says why"
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = var.name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "throttles" {
  alarm_name          = "${var.name}-throttles"
  alarm_description   = "Lambda has no instance to ring; look at the account's concurrency"
  namespace           = "AWS/Lambda"
  metric_name         = "Throttles"
  dimensions          = { FunctionName = var.name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 5
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "index_lag" {
  alarm_name          = "${var.name}-index-lag"
  alarm_description   = "The index is more than a minute behind the log"
  namespace           = "Fencepost"
  metric_name         = "IndexLag"
  dimensions          = { FunctionName = var.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = 60000
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "trimmed" {
  alarm_name          = "${var.name}-trimmed"
  alarm_description   = "Records were lost before they were read; run `fencepost index rebuild`"
  namespace           = "Fencepost"
  metric_name         = "Trimmed"
  dimensions          = { FunctionName = var.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  datapoints_to_alarm = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  # It stands until a ring says otherwise.
  treat_missing_data = "ignore"
  alarm_actions      = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "waiting" {
  alarm_name          = "${var.name}-waiting"
  alarm_description   = "Commits wait for records that do not come; run `fencepost index verify`"
  namespace           = "Fencepost"
  metric_name         = "Waiting"
  dimensions          = { FunctionName = var.name }
  statistic           = "Minimum"
  period              = 300
  evaluation_periods  = 1
  datapoints_to_alarm = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  # What waited at the last ring waits until a ring says otherwise.
  treat_missing_data = "ignore"
  alarm_actions      = local.alarm_actions
}

output "function_arn" {
  description = "The function"
  value       = aws_lambda_function.indexer.arn
}
