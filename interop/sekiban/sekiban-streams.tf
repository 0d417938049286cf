resource "aws_dynamodb_table" "SekibanEvents" {
  name         = "SekibanEvents"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  stream_enabled   = true
  stream_view_type = "NEW_IMAGE"

  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  attribute {
    name = "gsi1pk"
    type = "S"
  }

  attribute {
    name = "sortableUniqueId"
    type = "S"
  }

  global_secondary_index {
    name            = "GSI1"
    hash_key        = "gsi1pk"
    range_key       = "sortableUniqueId"
    projection_type = "ALL"
  }

  point_in_time_recovery {
    enabled = true
  }
}

resource "aws_dynamodb_table" "SekibanTags" {
  name         = "SekibanTags"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  attribute {
    name = "tagGroup"
    type = "S"
  }

  attribute {
    name = "tagString"
    type = "S"
  }

  global_secondary_index {
    name            = "GSI1"
    hash_key        = "tagGroup"
    range_key       = "tagString"
    projection_type = "ALL"
  }

  point_in_time_recovery {
    enabled = true
  }
}

resource "aws_dynamodb_table" "SekibanProjectionStates" {
  name         = "SekibanProjectionStates"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  point_in_time_recovery {
    enabled = true
  }
}

resource "aws_dynamodb_table" "Sekiban_side" {
  name         = "Sekiban-side"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "p"
  range_key    = "v"

  deletion_protection_enabled = true

  attribute {
    name = "p"
    type = "S"
  }

  attribute {
    name = "v"
    type = "N"
  }

  point_in_time_recovery {
    enabled = true
  }
}

resource "aws_s3_bucket" "sekiban_snapshots" {
  bucket = "my-sekiban-snapshots"

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_public_access_block" "sekiban_snapshots" {
  bucket = aws_s3_bucket.sekiban_snapshots.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "sekiban_snapshots" {
  bucket = aws_s3_bucket.sekiban_snapshots.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}
