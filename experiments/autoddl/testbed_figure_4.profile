# Collectives that `strata profile experiments/autoddl/testbed_figure_4_links.toml` measured on four nodes of the testbed, without
# its kernels: by these testbed_figure_4.toml is planned.

machine = "AMD EPYC, 2 cores"

[provenance]
measured = "2026-11-27T08:46:55.080Z"
strata = "0.1.0 (4ab46a2c0c1e-dirty)"
threads_per_rank = "1"

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 64
seconds = 0.0002755071500000001

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 256
seconds = 0.00023465470000000002

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 1024
seconds = 0.0002320257

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 4096
seconds = 0.0002443677

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 16384
seconds = 0.000633055

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 65536
seconds = 0.003418852

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 262144
seconds = 0.015318769

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 1048576
seconds = 0.066999371

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 4194304
seconds = 0.304423134

[[collectives]]
kind = "all_reduce"
group = "1x4"
transport = "mpi"
bytes = 16777216
seconds = 1.152247439

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 64
seconds = 0.00014168195

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 256
seconds = 0.00014491875000000002

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 1024
seconds = 0.00013684675000000002

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 4096
seconds = 0.0001408933

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 16384
seconds = 0.000539785

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 65536
seconds = 0.001283586

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 262144
seconds = 0.007092373

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 1048576
seconds = 0.033603675

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 4194304
seconds = 0.137653876

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 16777216
seconds = 0.617005833

[[collectives]]
kind = "reduce_scatter"
group = "1x4"
transport = "mpi"
bytes = 67108864
seconds = 2.141481189

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 64
seconds = 0.0001445783

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 256
seconds = 0.00013655419999999998

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 1024
seconds = 0.00014611055

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 4096
seconds = 0.00013976155

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 16384
seconds = 0.000510402

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 65536
seconds = 0.00135365

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 262144
seconds = 0.007260655

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 1048576
seconds = 0.03406939

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 4194304
seconds = 0.14539422600000002

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 16777216
seconds = 0.555772488

[[collectives]]
kind = "all_gather"
group = "1x4"
transport = "mpi"
bytes = 67108864
seconds = 2.148816971

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 64
seconds = 0.0001407525

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 256
seconds = 0.00012570155

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 1024
seconds = 0.0001420359

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 4096
seconds = 0.0001357191

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 16384
seconds = 0.000539585

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 65536
seconds = 0.001367641

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 262144
seconds = 0.007293313

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 1048576
seconds = 0.034311973

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 4194304
seconds = 0.1459420735

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 16777216
seconds = 0.641017786

[[collectives]]
kind = "all_to_all"
group = "1x4"
transport = "mpi"
bytes = 67108864
seconds = 2.1163992

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 64
seconds = 1.92525e-05

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 256
seconds = 1.8719450000000003e-05

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 1024
seconds = 5.477074999999999e-05

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 4096
seconds = 0.00023468574999999998

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 16384
seconds = 0.000309032

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 65536
seconds = 0.003865499

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 262144
seconds = 0.023712235

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 1048576
seconds = 0.059491342

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 4194304
seconds = 0.18770285

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 16777216
seconds = 0.709380341

[[collectives]]
kind = "broadcast"
group = "1x4"
transport = "mpi"
bytes = 67108864
seconds = 2.737094609

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 64
seconds = 2.8417949999999988e-05

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 256
seconds = 2.5514550000000005e-05

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 1024
seconds = 2.63468e-05

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 4096
seconds = 0.00020734790000000001

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 16384
seconds = 0.000303884

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 65536
seconds = 0.003181297

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 262144
seconds = 0.019496003

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 1048576
seconds = 0.06058943

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 4194304
seconds = 0.187509063

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 16777216
seconds = 0.699179289

[[collectives]]
kind = "reduce"
group = "1x4"
transport = "mpi"
bytes = 67108864
seconds = 2.731686059

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 9.756599999999999e-06

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 9.74005e-06

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 9.922800000000001e-06

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 8.180660000000001e-05

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 1.8117e-05

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.00120607

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.007985616

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.039368058

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.166064501

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.673897632

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 2.702873802

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 0.00016735469999999998

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 0.00017700715

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 0.00018717634999999995

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 0.0001678921

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 0.000289461

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.001986935

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.010173952

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.041866646

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.168245236

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.676437782

[[collectives]]
kind = "all_reduce"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 2.716764642

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 8.962570000000002e-05

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 8.550215e-05

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 8.732585000000001e-05

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 8.731030000000001e-05

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 0.000253348

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.000587096

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.004318956

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.020657546

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.084896588

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.33865887699999997

[[collectives]]
kind = "reduce_scatter"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 1.374000207

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 8.240665e-05

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 9.493359999999998e-05

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 8.48487e-05

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 8.36018e-05

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 0.00023435

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.000598072

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.004569365

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.020400784

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.084918992

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.34075157749999996

[[collectives]]
kind = "all_gather"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 1.361555356

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 9.2436e-05

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 9.054754999999998e-05

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 9.393010000000001e-05

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 9.117809999999998e-05

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 0.000252086

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.00064991

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.004644732

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.020173384

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.084438244

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.35444881549999996

[[collectives]]
kind = "all_to_all"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 1.364547412

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 1.6364949999999997e-05

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 1.2110049999999996e-05

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 1.481855e-05

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 0.0001065215

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 3.5172e-05

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.001573027

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.009245927

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.04002014

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.166882938

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.677366242

[[collectives]]
kind = "broadcast"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 2.717116633

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 2.351785e-05

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 2.5295250000000008e-05

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 2.7548000000000005e-05

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 0.00011494229999999999

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 3.0105e-05

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.001588951

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.009352576

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.040496962

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.167815855

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.67525031

[[collectives]]
kind = "reduce"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 2.703790606

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 64
seconds = 2.04786e-05

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 256
seconds = 2.3717850000000005e-05

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 1024
seconds = 2.3023400000000004e-05

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 4096
seconds = 0.0001058465

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 16384
seconds = 0.000234379

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 65536
seconds = 0.001739736

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 262144
seconds = 0.009182483

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 1048576
seconds = 0.040375235

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 4194304
seconds = 0.167705009

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 16777216
seconds = 0.67443959

[[collectives]]
kind = "send"
group = "1x2"
transport = "mpi"
bytes = 67108864
seconds = 2.703456177
