"""The conformance kit: vectors that any cron library or scheduler can be held against, and a runner that does it.

vectors/      the vectors, one JSON file per group; schemas/ has a JSON Schema for each of them and for the protocol
vector_files  reads and checks vector files
schema        the part of JSON Schema that the schemas use
protocol      line-based JSON over stdin and stdout: the way to an implementation in any language
comparison    an answer against a vector: agreement, a kind of deviation, or not applicable
deviations    every kind of deviation, and whether it differs from our specification by design or is a defect
runner        all vectors against one implementation
table         docs/conformance.md from the results of several implementations
calendar      cron and clock changes the slow way, minute by minute; shares nothing with duly
tz_database   which tz database is in use
generator/    writes the vectors
adapters/     duly and what people use today, behind the protocol

The runner and the adapters' side of the protocol need the standard library alone. README.md says how to use them.
"""
