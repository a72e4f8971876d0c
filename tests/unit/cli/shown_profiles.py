"""Profiles of Quark's, and what ``otel-quant show`` prints of them."""

from __future__ import annotations

from collections.abc import Callable

import yaml

Show = Callable[..., str]
"""Runs `otel-quant show`; returns what it prints."""

COMPLETE = """\
# Quark Profiling Results

memory_usage:
- step: "Start"
  timestamp: 1700000000.5
  relative_time_secs: 0.0
  cpu_memory_mb: 100.0
  gpu_memory_mb: 300.0
  disk_read_mb: 0.0
- step: "Model Quantization Start"
  timestamp: 1700000001.5
  relative_time_secs: 1.0
  cpu_memory_mb: 101.5
  gpu_memory_mb: 300.0
  disk_read_mb: 1.0
- step: "Calibration Start"
  timestamp: 1700000002.5
  relative_time_secs: 2.0
  cpu_memory_mb: 200.0
  gpu_memory_mb: 900.0
  disk_read_mb: 1.0
- step: "Calibration End"
  timestamp: 1700000014.0
  relative_time_secs: 13.5
  cpu_memory_mb: 1800.25
  gpu_memory_mb: 800.0
  disk_read_mb: 65.5
  error: "ValueError"
- step: "Model Quantization End"
  timestamp: 1700000015.0
  relative_time_secs: 14.5
  cpu_memory_mb: 151.5
  gpu_memory_mb: 310.0
  disk_read_mb: 66.0
  accuracy: 0.75
- step: "Model Loaded"
  timestamp: 1700000015.5
  relative_time_secs: 15.0
  cpu_memory_mb: 152.0
  gpu_memory_mb: 310.0
  disk_read_mb: 66.0
- step: "End"
  timestamp: 1700000016.5
  relative_time_secs: 16.0
  cpu_memory_mb: 150.0
  gpu_memory_mb: 310.0
  disk_read_mb: 66.0

# Summary Metrics
total_quantization_time_seconds: 16.0
peak_memory_mb: 1900.12

# Metric Definitions:
#
# Checkpoint Metrics (per record):
# - step: A name.
#    - more of it
# - timestamp: A time.
# - relative_time_secs: A time.
# - cpu_memory_mb: Memory.
# - gpu_memory_mb: Memory.
# - disk_read_mb: Bytes.
# - accuracy: A share.
#
# Summary Metrics (overall):
# - total_quantization_time_seconds: A time.
# - peak_memory_mb: Memory.

onnx_model_cost:
- role: "float"
  macs: 4089
  precision: {"float32": 1.0}
"""

TABLE = """\
p.yaml finished in 16.0 s.
Calibration raised ValueError; the program survived it.
Memory peaked at 1.99 GB.
GPU memory of all programs reached at least 944 MB in Model Quantization > Calibration.
2 steps took 13.5 s of 16.0 s, most of it Model Quantization > Calibration: 11.5 s, 71.9 % of the run.

STEP                     START   TIME     %  MEM START  MEM END  MEM SEEN  GPU (ALL) SEEN  READ  accuracy  STATE
                             s      s               MB       MB        MB              MB    MB
-----------------------  -----  -----  ----  ---------  -------  --------  --------------  ----  --------  ------------------
(before the first step)   0.00   1.00   6.2      104.9    106.4         -               -     -         -
Model Quantization        1.00  13.50  84.4      106.4    158.9   1,887.7           943.7  68.2      0.75  ok
  Calibration             2.00  11.50  71.9      209.7  1,887.7   1,887.7           943.7  67.6         -  failed: ValueError
Model Loaded             15.00      -     -      159.4        -     159.4           325.1     -         -
(after the last step)    14.50   1.50   9.4      158.9    157.3         -               -     -         -
SEEN is the highest at the checkpoints, not between them. GPU (ALL) is memory of all programs on the GPUs.

Model  Before (float)
-----  --------------
MACs            4,089
"""

DESCRIBED = """\
# Quark Profiling Results

run:
  id: "0123456789abcdef"
  command: "python quantize.py | tee log"
  host: "node7"
  system: "Linux 6.1.0 x86_64"
  python: "3.11.2"
  otel_quant: "0.2.0"
  memory_limit_mb: 4000.0
  memory_limit_source: "cgroup"
  gpus: ["NVIDIA H200", "NVIDIA H200"]

memory_usage:
- step: "Start"
  relative_time_secs: 0.0
  cpu_memory_mb: 100.0
- step: "Calibration Start"
  relative_time_secs: 1.0
  cpu_memory_mb: 200.0
  # libraries: ["amd-quark 0.13", "onnxruntime 1.22.0"]
  # calibration_method: "Percentile"
- step: "Calibration End"
  relative_time_secs: 4.0
  cpu_memory_mb: 300.0
  error_message: "no layer | named 'conv1' in <model>, which has more of them than a line can show"
  error: "ValueError"
  # peak_memory_mb: 3000.00
  # calibration_samples: 128
- step: "End"
  relative_time_secs: 5.0
  cpu_memory_mb: 300.0

# Summary Metrics
peak_memory_mb: 2900.0

# Metric Definitions:
#
# Checkpoint Metrics (per record):
# - step: A name.
# - relative_time_secs: A time.
# - cpu_memory_mb: Memory.
#
# Summary Metrics (overall):
# - peak_memory_mb: Memory.

run_end:
  ended: "with ValueError"
  libraries: ["amd-quark 0.13", "onnxruntime 1.22.0"]
  calibration_method: "Percentile"
  calibration_samples: 128
  calibration_items: 1024
  tree_peak_memory_mb: 3000.0
  tree_peak_memory_source: "kernel"
  memory_limit_share: 0.75
  gpu_memory_limit_share: 0.123

onnx_model_cost:
- role: "float"
  size: 104857600
- role: "quantized"
  size: 27262976
"""

DESCRIBED_TABLE = """\
quantize.py failed after 5.00 s in Calibration.
ValueError: no layer | named 'conv1' in <model>, which has more of them than a line can show.
Memory peaked at 3.15 GB in Calibration: 75.0 % of the limit of 4.19 GB.
Calibration took 3.00 s of 5.00 s.
1.00 of 5.00 s passed before the first step.
1.00 of 5.00 s passed after the last step.

STEP                     START  TIME     %  MEM START  MEM END  MEM PEAK  OF LIMIT  SAMPLES  STATE
                             s     s               MB       MB        MB         %
-----------------------  -----  ----  ----  ---------  -------  --------  --------  -------  ------------------
(before the first step)   0.00  1.00  20.0      104.9    209.7         -         -        -
Calibration               1.00  3.00  60.0      209.7    314.6   3,145.7      75.0      128  failed: ValueError
(after the last step)     4.00  1.00  20.0      314.6    314.6         -         -        -

memory limit     4.19 GB (of the control group)
GPU memory peak  12.3 % of the memory of the fullest GPU, by all programs
GPUs             NVIDIA H200, NVIDIA H200
libraries        amd-quark 0.13, onnxruntime 1.22.0
calibration      Percentile, 128 samples (batches), 1024 items
command          python quantize.py | tee log
host             node7, Linux 6.1.0 x86_64
Python           3.11.2, otel-quant 0.2.0

Model                   Before (float)  After (quantized)  Change
----------------------  --------------  -----------------  ------
File and external data          105 MB            27.3 MB  x 0.26
"""

COST = """\

onnx_model_cost:
- role: "quantized"
  path: "out/int8.onnx"
  size: 26738688
  params: 25557032
  macs: 4133742592
  macs_contraction: 4089284608
  backward_macs: 8178569216
  weight_bytes: 25600000
  memory: 134217728
  peak_activation_bytes: 6422528
  nodes: 420
  qdq_nodes: 296
  max_memory_node: "Conv_0"
  integer_mac_share: 0.999712
  precision.int8: 0.999712
  precision.float32: 0.000288
  expected_precision.float32: 1.0
  runtime: onnxruntime 1.32.0 on an x86-64 CPU
  in_float: ["the bias is int8 (Conv 53)"]
  uncosted_ops: ["Foo:1", "Bar:2"]
  colour: 1234567
- path: "huge.onnx"
  size: 4096
  error: "cannot be costed"
"""

COST_SHOWN = """\
Model Quantization        1.00  13.50  84.4      106.4    158.9   1,887.7           943.7  68.2      0.75  ok
  Calibration             2.00  11.50  71.9      209.7  1,887.7   1,887.7           943.7  67.6         -  failed: ValueError
Model Loaded             15.00      -     -      159.4        -     159.4           325.1     -         -
(after the last step)    14.50   1.50   9.4      158.9    157.3         -               -     -         -
SEEN is the highest at the checkpoints, not between them. GPU (ALL) is memory of all programs on the GPUs.

Model                               After (quantized)  huge.onnx
----------------------------------  -----------------  ---------
File and external data                        26.7 MB    4.10 kB
Parameters                                     25.6 M
MACs                                           4.13 G
MACs of contractions                           4.09 G
Backward MACs                                  8.18 G
Weights                                       25.6 MB
Memory                                         134 MB
Peak of activations                           6.42 MB
Nodes                                             420
(De)QuantizeLinear nodes                          296
Contractions that ask for integers            100.0 %

Quantized model: out/int8.onnx; contractions ask for int8 99.97 %, float32 0.03 %, expected to run in float32 100.00 % by onnxruntime 1.32.0 on an x86-64 CPU, because the bias is int8 (Conv 53); without known costs Foo:1, Bar:2.
Huge.onnx model: huge.onnx.
The huge.onnx model could not be costed: cannot be costed
"""

_described = yaml.safe_load(DESCRIBED)
RUN = {**_described["run"], **_described["run_end"]}
"""What the file says of the run."""
