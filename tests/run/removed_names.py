"""For each row of the table of removed names: a program in the old style, and its value from another source.

The last line of a program is its value. `jax`, `jnp`, `np` are imported in each program and each expectation. A value
and its expectation are the same object, equal, or arrays of equal elements.
"""

JAX = {
    # trees
    "jax.tree_map": ("jax.tree_map(lambda a, b: a + b, {'x': [1, 2]}, {'x': [10, 20]})", "{'x': [11, 22]}"),
    "jax.tree_multimap": ("from jax import tree_multimap\ntree_multimap(max, [1, 5], [2, 3])", "[2, 5]"),
    "jax.tree_leaves": ("jax.tree_leaves({'b': 1, 'a': (2, None)})", "[2, 1]"),
    "jax.tree_flatten": ("leaves, tree = jax.tree_flatten((3, [4]))\nleaves", "[3, 4]"),
    "jax.tree_unflatten": ("jax.tree_unflatten(jax.tree_util.tree_structure((0, [0])), [5, 6])", "(5, [6])"),
    "jax.tree_structure": ("jax.tree_structure([1, {'a': 2}]).num_leaves", "2"),
    "jax.tree_transpose": (
        "of = jax.tree_util.tree_structure\njax.tree_transpose(of([0, 0]), of((0, 0)), [(1, 2), (3, 4)])",
        "([1, 3], [2, 4])",
    ),
    "jax.treedef_is_leaf": ("jax.treedef_is_leaf(jax.tree_util.tree_structure(1))", "True"),
    "jax.tree_util.tree_multimap": ("jax.tree_util.tree_multimap(min, [1, 5], [2, 3])", "[1, 3]"),
    "jax.tree_util.partial": ("jax.tree_util.partial(pow, 2)(5)", "32"),
    # types of arrays, keys and devices
    "jax.numpy.DeviceArray": ("isinstance(jnp.ones(2), jnp.DeviceArray)", "True"),
    "jax.random.KeyArray": ("isinstance(jax.random.PRNGKey(0), jax.random.KeyArray)", "True"),
    "jax.random.PRNGKeyArray": ("isinstance(jax.random.key(0), jax.random.PRNGKeyArray)", "True"),
    "jax.prng.PRNGKeyArray": ("import jax.prng\nisinstance(jax.random.key(0), jax.prng.PRNGKeyArray)", "True"),
    "jax.interpreters.xla.DeviceArray": ("isinstance(jnp.ones(2), jax.interpreters.xla.DeviceArray)", "True"),
    "jax.interpreters.xla._DeviceArray": ("isinstance(np.ones(2), jax.interpreters.xla._DeviceArray)", "False"),
    "jax.interpreters.xla.Buffer": ("isinstance(jnp.ones(2), jax.interpreters.xla.Buffer)", "True"),
    "jax.interpreters.xla.Device": ("isinstance(jax.devices()[0], jax.interpreters.xla.Device)", "True"),
    "jax.interpreters.pxla.ShardedDeviceArray": (
        "from jax.interpreters import pxla\nisinstance(jax.pmap(jnp.sin)(jnp.ones([1])), pxla.ShardedDeviceArray)",
        "True",
    ),
    "jax.experimental.global_device_array.GlobalDeviceArray": (
        "from jax.experimental.global_device_array import GlobalDeviceArray as G\nisinstance(jnp.ones(2), G)",
        "True",
    ),
    "jax.lib.xla_extension.DeviceArray": (
        "from jax.lib import xla_extension\nisinstance(jnp.ones(2), xla_extension.DeviceArray)",
        "True",
    ),
    "jax.lib.xla_extension.ArrayImpl": (
        "from jax.lib.xla_extension import ArrayImpl\nisinstance(jnp.ones(2), ArrayImpl)",
        "True",
    ),
    "jax.lib.xla_extension.Device": (
        "import jax.lib.xla_extension\nisinstance(jax.devices()[0], jax.lib.xla_extension.Device)",
        "True",
    ),
    "jax.lib.xla_extension.XlaRuntimeError": ("jax.lib.xla_extension.XlaRuntimeError.__name__", "'JaxRuntimeError'"),
    "jax.lib.xla_client.ArrayImpl": ("isinstance(jnp.ones(2), jax.lib.xla_client.ArrayImpl)", "True"),
    "jax.lib.xla_client.Device": (
        "from jax.lib import xla_client as xc\nisinstance(jax.devices()[0], xc.Device)",
        "True",
    ),
    "jax.lib.xla_client.XlaRuntimeError": ("issubclass(jax.lib.xla_client.XlaRuntimeError, RuntimeError)", "True"),
    "jax.lib.xla_client.FftType": ("jax.lib.xla_client.FftType.FFT.name", "'FFT'"),
    "jax.lib.xla_client.bfloat16": ("np.ones(2, jax.lib.xla_client.bfloat16).dtype.name", "'bfloat16'"),
    "jaxlib.xla_extension.DeviceArray": ("import jaxlib\nisinstance(1.0, jaxlib.xla_extension.DeviceArray)", "False"),
    "jaxlib.xla_extension.ArrayImpl": (
        "from jaxlib.xla_extension import ArrayImpl\nisinstance(jnp.ones(2), ArrayImpl)",
        "True",
    ),
    "jaxlib.xla_extension.Device": (
        "from jaxlib import xla_extension\nisinstance(jax.devices()[0], xla_extension.Device)",
        "True",
    ),
    "jaxlib.xla_extension.XlaRuntimeError": (
        "from jaxlib.xla_extension import XlaRuntimeError\nissubclass(XlaRuntimeError, RuntimeError)",
        "True",
    ),
    # methods and attributes of arrays
    "jax.Array.device()": ("jnp.ones(2).device().platform", "'cpu'"),
    "jax.Array.__int__()": ("int(jnp.array([[3]]))", "3"),
    "jax.Array.__float__()": ("'%.1f' % jnp.array([2.5])", "'2.5'"),
    "jax.Array.device_buffer": ("np.asarray(jnp.arange(3).device_buffer)", "[0, 1, 2]"),
    "jax.Array.device_buffers": ("[np.asarray(b).tolist() for b in jnp.arange(2).device_buffers]", "[[0, 1]]"),
    "jax.Array.to_py()": ("a = jnp.zeros(2).to_py()\na[0] = 1\na", "[1.0, 0.0]"),
    "jax.Array.block_host_until_ready()": ("jnp.ones(2).block_host_until_ready()", "[1.0, 1.0]"),
    "jax.Array.broadcast(sizes)": ("jnp.arange(2).broadcast((2,))", "[[0, 1], [0, 1]]"),
    "jax.Array.broadcast_in_dim(shape, broadcast_dimensions)": (
        "jnp.arange(2).broadcast_in_dim((2, 2), (0,))",
        "[[0, 0], [1, 1]]",
    ),
    "jax.Array.split(indices_or_sections, axis=0)": ("jnp.arange(4).split(2)[1]", "[2, 3]"),
    "jax.Array.tile(reps)": ("jnp.arange(2).tile(2)", "[0, 1, 0, 1]"),
    "jax.Array.unsafe_raw_array()": ("jax.random.key(7).unsafe_raw_array()", "[0, 7]"),
    # settings
    "jax.config.config": ("from jax.config import config\nconfig.jax_enable_x64", "False"),
    "jax.config.FLAGS": ("from jax.config import FLAGS\nFLAGS.jax_enable_x64", "False"),
    "jax.config.enable_omnistaging()": ("jax.config.enable_omnistaging()", "None"),
    "jax.config.omnistaging_enabled": ("jax.config.omnistaging_enabled", "True"),
    "jax.config.jax_omnistaging": ("jax.config.update('jax_omnistaging', True)\njax.config.jax_omnistaging", "True"),
    "jax.config.jax_array": ("jax.config.update('jax_array', True)", "None"),
    "jax.config.jax_jit_pjit_api_merge": ("jax.config.jax_jit_pjit_api_merge", "True"),
    "jax.config.jax_experimental_name_stack": ("jax.config.jax_experimental_name_stack", "True"),
    "jax.config.jax_new_checkpoint": ("jax.config.update('jax_new_checkpoint', True)", "None"),
    "jax.config.jax_remat_opt_barrier": ("jax.config.update('jax_remat_opt_barrier', False)", "None"),
    "jax.config.jax_enable_mlir": ("jax.config.update('jax_enable_mlir', True)", "None"),
    "jax.config.jax_parallel_functions_output_gda": (
        "jax.config.update('jax_parallel_functions_output_gda', True)",
        "None",
    ),
    "jax.config.jax_host_callback_ad_transforms": ("jax.config.jax_host_callback_ad_transforms", "False"),
    "jax.config.jax_host_callback_inline": ("jax.config.update('jax_host_callback_inline', True)", "None"),
    "jax.config.jax_host_callback_outfeed": ("jax.config.update('jax_host_callback_outfeed', True)", "None"),
    "jax.config.jax_coordination_service": ("jax.config.jax_coordination_service", "True"),
    "jax.config.jax_enable_memories": ("jax.config.update('jax_enable_memories', True)", "None"),
    "jax.config.jax_spmd_mode": ("jax.config.update('jax_spmd_mode', 'allow_all')", "None"),
    "jax.config.jax_eager_pmap": ("jax.config.update('jax_eager_pmap', True)", "None"),
    "jax.config.jax_pmap_no_rank_reduction": ("jax.config.jax_pmap_no_rank_reduction", "True"),
    "jax.experimental.enable_x64(new_val=True)": (
        "from jax.experimental import enable_x64\nwith enable_x64():\n    name = jnp.ones(2).dtype.name\nname",
        "'float64'",
    ),
    "jax.experimental.disable_x64()": (
        "with jax.experimental.disable_x64():\n    name = jnp.ones(2).dtype.name\nname",
        "'float32'",
    ),
    "jax.experimental.x64_context.enable_x64(new_val=True)": (
        "from jax.experimental.x64_context import enable_x64\n"
        "with enable_x64(False):\n    name = jnp.ones(2).dtype.name\nname",
        "'float32'",
    ),
    "jax.experimental.x64_context.disable_x64()": (
        "from jax.experimental import x64_context\n"
        "with x64_context.disable_x64():\n    name = jnp.ones(2).dtype.name\nname",
        "'float32'",
    ),
    "jax.enable_key_reuse_checks": (
        "with jax.enable_key_reuse_checks(True):\n    on = jax.config.jax_debug_key_reuse\non",
        "True",
    ),
    "jax.experimental.compilation_cache.compilation_cache.initialize_cache(path)": (
        "from jax.experimental.compilation_cache import compilation_cache as cc\n"
        "cc.initialize_cache('/tmp/cache-of-a-test')\n"
        "path = jax.config.jax_compilation_cache_dir\njax.config.update('jax_compilation_cache_dir', None)\npath",
        "'/tmp/cache-of-a-test'",
    ),
    # modules that moved as a whole
    "jax.api.*": ("from jax import api\napi.grad(lambda x: x * x)(3.0)", "6.0"),
    "jax.experimental.optimizers.*": (
        "from jax.experimental import optimizers\n"
        "init, update, params = optimizers.sgd(0.5)\nparams(update(0, 2.0, init(3.0)))",
        "2.0",
    ),
    "jax.experimental.stax.*": (
        "from jax.experimental import stax\ninit, apply = stax.Dense(4)\ninit(jax.random.PRNGKey(0), (2, 3))[0]",
        "(2, 4)",
    ),
    "jax.experimental.optix.*": (
        "from jax.experimental import optix\n"
        "tx = optix.sgd(0.5)\noptix.apply_updates(3.0, tx.update(2.0, tx.init(3.0))[0])",
        "2.0",
    ),
    "jax.experimental.export.*": (
        "from jax.experimental import export\nexport.export(jax.jit(jnp.sin))(np.float32(0)).out_avals[0].shape",
        "()",
    ),
    "jax.experimental.array_api.*": (
        "import jax.experimental.array_api as xp\nxp.permute_dims(xp.ones((2, 3)), (1, 0)).shape",
        "(3, 2)",
    ),
    "jax.experimental.gda_serialization.*": (
        "import jax.experimental.gda_serialization as s\ns.__name__",
        "'jax.experimental.array_serialization'",
    ),
    "jax.experimental.ann.*": (
        "from jax.experimental import ann\nann.approx_max_k(jnp.array([1.0, 3.0, 2.0]), 2)[1]",
        "[1, 2]",
    ),
    "jax.experimental.shard.*": ("from jax.experimental.shard import reshard\ncallable(reshard)", "True"),
    "jax.linear_util.*": ("from jax import linear_util as lu\ncallable(lu.transformation)", "True"),
    "jax.source_info_util.*": ("from jax import source_info_util\ncallable(source_info_util.current)", "True"),
    "jax.extend.ffi.*": ("import jax.extend.ffi\ncallable(jax.extend.ffi.ffi_call)", "True"),
    "jax.lax_linalg.*": ("from jax import lax_linalg\nlax_linalg.cholesky(4.0 * jnp.eye(2))", "2 * np.eye(2)"),
    "jax.lax.lax.*": ("from jax.lax import lax\nlax.add(1, 2)", "3"),
    "jax.lax.lax_control_flow.*": (
        "from jax.lax import lax_control_flow\nlax_control_flow.fori_loop(0, 3, lambda i, x: x + i, 0)",
        "3",
    ),
    "jax.lax.lax_parallel.*": (
        "from jax.lax.lax_parallel import psum\njax.vmap(lambda x: psum(x, 'i'), axis_name='i')(jnp.arange(3))",
        "[3, 3, 3]",
    ),
    "jax.lax.lax_fft.*": (
        "from jax.lax import lax_fft\nlax_fft.fft(jnp.ones(2, jnp.complex64), 'FFT', (2,))",
        "[2, 0]",
    ),
    "jax.nn.functions.*": ("from jax.nn.functions import relu\nrelu(jnp.array([-1.0, 2.0]))", "[0.0, 2.0]"),
    "jax.numpy.lax_numpy.*": ("from jax.numpy import lax_numpy\nlax_numpy.sum(jnp.arange(4))", "6"),
    "jax.ops.scatter.*": (
        "from jax.ops.scatter import segment_sum\nsegment_sum(jnp.arange(4), jnp.array([0, 0, 1, 1]))",
        "[1, 5]",
    ),
    "jax.cloud_tpu_init.*": ("import jax.cloud_tpu_init\njax.cloud_tpu_init.__name__", "'jax.cloud_tpu_init'"),
    "jax.tools.colab_tpu.setup_tpu(tpu_driver_version=None)": (
        "import jax.tools.colab_tpu\njax.tools.colab_tpu.setup_tpu()",
        "None",
    ),
    "jax.xla": ("from jax import xla\nisinstance(jnp.ones(2), xla.DeviceArray)", "True"),
    "jax.pxla": ("jax.pxla.Mesh.__name__", "'Mesh'"),
    "jax.partial_eval": ("callable(jax.partial_eval.trace_to_jaxpr_dynamic)", "True"),
    # jax
    "jax.partial": (
        "from jax import partial\n@partial(jax.jit, static_argnums=1)\ndef f(x, n):\n    return x ** n\nf(2.0, 3)",
        "8.0",
    ),
    "jax.curry(f)": ("jax.curry(pow)(2)(5)", "32"),
    "jax.ShapedArray": ("jax.ShapedArray((2,), jnp.float32).shape", "(2,)"),
    "jax.Compiled": ("isinstance(jax.jit(jnp.sin).lower(1.0).compile(), jax.Compiled)", "True"),
    "jax.Lowered": ("isinstance(jax.jit(jnp.sin).lower(1.0), jax.Lowered)", "True"),
    "jax.stages.OutInfo": ("jax.stages.OutInfo((2,), jnp.float32).shape", "(2,)"),
    "jax.clear_backends": ("callable(jax.clear_backends)", "True"),
    "jax.xla_computation(fun, static_argnums=())": (
        "jax.xla_computation(lambda x, n: x * n, static_argnums=1)(1.0, 3).as_hlo_text().startswith('HloModule')",
        "True",
    ),
    "jax.device_put_replicated": (
        "x = jax.device_put_replicated({'w': jnp.arange(2)}, jax.devices())\njax.pmap(lambda x: x['w'] + 1)(x)",
        "[[1, 2]]",
    ),
    "jax.device_put_sharded": ("jax.device_put_sharded([(jnp.arange(2), 5.0)], jax.devices())[0]", "[[0, 1]]"),
    "jax.array_ref": ("r = jax.array_ref(jnp.zeros(2))\nr[0] = 1.0\nr[...]", "[1.0, 0.0]"),
    "jax.ArrayRef": ("isinstance(jax.new_ref(jnp.zeros(2)), jax.ArrayRef)", "True"),
    "jax.experimental.mutable_array": (
        "from jax.experimental import mutable_array\nr = mutable_array(jnp.zeros(2))\nr[1] = 3.0\nr[...]",
        "[0.0, 3.0]",
    ),
    "jax.experimental.MutableArray": ("isinstance(jax.new_ref(jnp.zeros(2)), jax.experimental.MutableArray)", "True"),
    "jax.ad_checkpoint.checkpoint": (
        "from jax.ad_checkpoint import checkpoint\njax.grad(checkpoint(lambda x: x * x))(3.0)",
        "6.0",
    ),
    "jax.ad_checkpoint.remat": (
        "from jax import ad_checkpoint\njax.grad(ad_checkpoint.remat(lambda x: x * x))(3.0)",
        "6.0",
    ),
    "jax.dlpack.to_dlpack(x)": ("type(jax.dlpack.to_dlpack(jnp.ones(2))).__name__", "'PyCapsule'"),
    "jax.profiler.TraceContext": ("with jax.profiler.TraceContext('a'):\n    x = 1\nx", "1"),
    "jax.profiler.StepTraceContext": ("with jax.profiler.StepTraceContext('a', step_num=1):\n    x = 2\nx", "2"),
    "jax.profiler.trace_function": ("jax.profiler.trace_function(lambda x: x + 1, name='a')(2)", "3"),
    "jax.jit(fun=)": ("jax.jit(fun=lambda x: x + 1)(1)", "2"),
    "jax.jit(_1)": ("jax.jit(lambda x, n: x if n > 1 else -x, 1)(5, 2)", "5"),
    "jax.jit(_2)": ("jax.jit(lambda x, n: x if n > 1 else -x, (1,), jax.devices()[0])(5, 1)", "-5"),
    "jax.jit(_3)": ("jax.jit(lambda x: x + 1, (), None, 'cpu')(5)", "6"),
    "jax.jit(_4)": ("jax.jit(lambda x: x + 1, (), None, None, (0,))(jnp.zeros(2))", "[1.0, 1.0]"),
    "jax.checkpoint(concrete=)": ("jax.grad(jax.checkpoint(lambda x: x * x, concrete=False))(3.0)", "6.0"),
    "jax.remat(concrete=)": ("jax.grad(jax.remat(lambda x: x * x, concrete=True))(2.0)", "4.0"),
    "jax.pmap(global_arg_shapes=)": ("jax.pmap(lambda x: x + 1, global_arg_shapes=None)(jnp.zeros(1))", "[1.0]"),
    # updates by index
    "jax.ops.index_update(x, idx, y)": (
        "from jax.ops import index, index_update\nindex_update(jnp.zeros((2, 2)), index[:, 1], 3.0)",
        "[[0, 3], [0, 3]]",
    ),
    "jax.ops.index_add(x, idx, y)": ("jax.ops.index_add(np.ones(3), 1, 4.0)", "[1, 5, 1]"),
    "jax.ops.index_mul(x, idx, y)": ("jax.ops.index_mul(jnp.full(2, 3.0), 0, 2.0)", "[6, 3]"),
    "jax.ops.index_min(x, idx, y)": ("jax.ops.index_min(jnp.full(2, 3.0), 0, 2.0)", "[2, 3]"),
    "jax.ops.index_max(x, idx, y)": ("jax.ops.index_max(jnp.full(2, 3.0), 0, 4.0)", "[4, 3]"),
    "jax.ops.index": ("jnp.arange(6).reshape(2, 3)[jax.ops.index[1, ::2]]", "[3, 5]"),
    # jax.numpy
    "jax.numpy.NINF": ("jnp.NINF", "float('-inf')"),
    "jax.numpy.PZERO": ("str(jnp.PZERO)", "'0.0'"),
    "jax.numpy.NZERO": ("str(jnp.NZERO)", "'-0.0'"),
    "jax.numpy.alltrue": ("jnp.alltrue(jnp.array([[True, False], [True, True]]), axis=1)", "[False, True]"),
    "jax.numpy.sometrue": ("jnp.sometrue(jnp.array([[True, False], [False, False]]), 1)", "[True, False]"),
    "jax.numpy.product": ("jnp.product(jnp.array([2, 3, 4]))", "24"),
    "jax.numpy.cumproduct": ("jnp.cumproduct(jnp.array([2, 3, 4]))", "[2, 6, 24]"),
    "jax.numpy.fix": ("jnp.fix(jnp.array([-1.5, 1.5]))", "[-1.0, 1.0]"),
    "jax.numpy.in1d(ar1, ar2, assume_unique=False, invert=False)": (
        "jnp.in1d(jnp.array([[1, 2], [3, 4]]), jnp.array([2, 3]), invert=True)",
        "[True, False, False, True]",
    ),
    "jax.numpy.issubsctype(arg1, arg2)": ("jnp.issubsctype(jnp.ones(2), jnp.floating)", "True"),
    "jax.numpy.msort(a)": ("jnp.msort(jnp.array([[3, 1], [2, 4]]))", "[[2, 1], [3, 4]]"),
    "jax.numpy.round_": ("jnp.round_(jnp.array([1.26, 2.71]), 1) * 10", "np.float32([13, 27])"),
    "jax.numpy.row_stack": ("jnp.row_stack([jnp.arange(2), jnp.arange(2)])", "[[0, 1], [0, 1]]"),
    "jax.numpy.trapz": ("jnp.trapz(jnp.array([1.0, 2.0, 3.0]), dx=2.0)", "8.0"),
    "jax.numpy.array(_2)": ("jnp.array([1, 2], jnp.float32, True)", "[1.0, 2.0]"),
    "jax.numpy.array(_3)": ("jnp.array([1, 2], None, True, 'K')", "[1, 2]"),
    "jax.numpy.array(_4)": ("jnp.array([1, 2], None, True, 'K', 2)", "[[1, 2]]"),
    "jax.numpy.broadcast_to(arr=)": ("jnp.broadcast_to(arr=jnp.arange(2), shape=(2, 2))", "[[0, 1], [0, 1]]"),
    "jax.numpy.clip(a=)": ("jnp.clip(a=jnp.arange(4), a_min=1, a_max=2)", "[1, 1, 2, 2]"),
    "jax.numpy.clip(a_min=)": ("jnp.clip(jnp.arange(4), a_min=2)", "[2, 2, 2, 3]"),
    "jax.numpy.clip(a_max=)": ("jnp.clip(jnp.arange(4), a_min=None, a_max=1)", "[0, 1, 1, 1]"),
    "jax.numpy.reshape(newshape=)": ("jnp.reshape(jnp.arange(4), newshape=(2, 2))", "[[0, 1], [2, 3]]"),
    "jax.numpy.sort(kind=)": ("jnp.sort(jnp.array([3, 1, 2]), kind='quicksort')", "[1, 2, 3]"),
    "jax.numpy.argsort(kind=)": ("jnp.argsort(jnp.array([3, 1, 2]), kind='stable')", "[1, 2, 0]"),
    "jax.numpy.percentile(interpolation=)": (
        "jnp.percentile(jnp.array([1.0, 2.0, 4.0]), 75, interpolation='lower')",
        "2.0",
    ),
    "jax.numpy.quantile(interpolation=)": (
        "jnp.quantile(jnp.array([1.0, 2.0, 4.0]), 0.75, interpolation='higher')",
        "4.0",
    ),
    "jax.numpy.nanpercentile(interpolation=)": (
        "jnp.nanpercentile(jnp.array([1.0, jnp.nan, 4.0]), 50, interpolation='lower')",
        "1.0",
    ),
    "jax.numpy.nanquantile(interpolation=)": (
        "jnp.nanquantile(jnp.array([1.0, jnp.nan, 4.0]), 0.5, interpolation='midpoint')",
        "2.5",
    ),
    "jax.numpy.where(condition=)": ("jnp.where(condition=jnp.array([True, False]), x=1, y=2)", "[1, 2]"),
    "jax.numpy.where(x=)": ("jnp.where(jnp.array([True, False]), y=2, x=1)", "[1, 2]"),
    "jax.numpy.where(y=)": ("jnp.where(jnp.array([True, False]), 1, y=2)", "[1, 2]"),
    # jax.lax
    "jax.lax.tie_in(x, y)": ("jax.lax.tie_in(1, 2)", "2"),
    "jax.lax.partial": ("from jax.lax import partial\npartial(pow, 2)(3)", "8"),
    "jax.lax.prod": ("jax.lax.prod((2, 3))", "6"),
    "jax.lax.dtypes": ("jax.lax.dtypes.bfloat16", "jnp.bfloat16"),
    "jax.lax.zeros_like_array": ("jax.lax.zeros_like_array(jnp.ones(2))", "[0.0, 0.0]"),
    "jax.lax.pvary(x, axis_name)": (
        "mesh, P = jax.sharding.Mesh(jax.devices(), 'i'), jax.sharding.PartitionSpec\n"
        "jax.shard_map(lambda x: jax.lax.pvary(x, 'i'), mesh=mesh, in_specs=P(), out_specs=P('i'))(jnp.ones(2))",
        "[1.0, 1.0]",
    ),
    "jax.lax.dot(_2)": ("jax.lax.dot(jnp.ones(2), jnp.ones(2), None)", "2.0"),
    "jax.lax.dot(_3)": ("jax.lax.dot(jnp.ones(2), jnp.ones(2), None, jnp.float32).dtype.name", "'float32'"),
    "jax.lax.with_sharding_constraint(axis_resources=)": (
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec\n"
        "place = NamedSharding(Mesh(jax.devices(), 'i'), PartitionSpec('i'))\n"
        "jax.lax.with_sharding_constraint(jnp.ones(2), axis_resources=place)",
        "[1.0, 1.0]",
    ),
    "jax.lax.linalg.cholesky(_1)": ("jax.lax.linalg.cholesky(4.0 * jnp.eye(2), False)", "2 * np.eye(2)"),
    "jax.lax.linalg.eigh(_1)": ("jax.lax.linalg.eigh(jnp.diag(jnp.array([2.0, 1.0])), True)[1]", "[1.0, 2.0]"),
    "jax.lax.linalg.eigh(_2)": ("jax.lax.linalg.eigh(jnp.diag(jnp.array([2.0, 1.0])), True, False)[1]", "[1.0, 2.0]"),
    "jax.lax.linalg.qr(_1)": ("jax.lax.linalg.qr(jnp.ones((3, 2)), False)[0].shape", "(3, 2)"),
    "jax.lax.linalg.svd(_1)": ("jax.lax.linalg.svd(jnp.ones((3, 2)), False)[0].shape", "(3, 2)"),
    "jax.lax.linalg.svd(_2)": ("np.shape(jax.lax.linalg.svd(jnp.eye(2), True, False))", "(2,)"),
    # jax.nn, jax.random, jax.scipy
    "jax.nn.normalize": ("jnp.round(jax.nn.normalize(jnp.array([1.0, 3.0])), 3)", "[-1.0, 1.0]"),
    "jax.nn.softmax(initial=)": ("jax.nn.softmax(jnp.zeros(2), initial=None)", "[0.5, 0.5]"),
    "jax.nn.log_softmax(initial=)": ("jnp.exp(jax.nn.log_softmax(jnp.zeros(1), initial=-jnp.inf))", "[1.0]"),
    "jax.random.shuffle(key, x, axis=0)": (
        "jnp.sort(jax.random.shuffle(jax.random.PRNGKey(0), jnp.arange(5)))",
        "[0, 1, 2, 3, 4]",
    ),
    "jax.random.threefry2x32_key(seed)": ("jax.random.threefry2x32_key(7)", "[0, 7]"),
    "jax.random.rbg_key(seed)": ("jax.random.rbg_key(7).shape", "(4,)"),
    "jax.random.unsafe_rbg_key(seed)": ("jax.random.unsafe_rbg_key(7).shape", "(4,)"),
    "jax.random.threefry_2x32": (
        "jax.random.threefry_2x32(jnp.zeros(2, jnp.uint32), jnp.zeros(2, jnp.uint32))",
        "np.uint32([0x6B200159, 0x99BA4EFE])",
    ),
    "jax.random.threefry2x32_p": ("jax.random.threefry2x32_p.name", "'threefry2x32'"),
    "jax.prng.threefry_2x32": (
        "from jax.prng import threefry_2x32\nthreefry_2x32(jnp.zeros(2, jnp.uint32), jnp.zeros(2, jnp.uint32))",
        "np.uint32([0x6B200159, 0x99BA4EFE])",
    ),
    "jax.prng.threefry2x32_p": ("jax.prng.threefry2x32_p.name", "'threefry2x32'"),
    "jax.prng.threefry_prng_impl": ("jax.prng.threefry_prng_impl.key_shape", "(2,)"),
    "jax.prng.rbg_prng_impl": ("jax.prng.rbg_prng_impl.key_shape", "(4,)"),
    "jax.prng.unsafe_rbg_prng_impl": ("jax.prng.unsafe_rbg_prng_impl.key_shape", "(4,)"),
    "jax.prng.seed_with_impl": (
        "import jax.prng\njax.random.key_data(jax.prng.seed_with_impl(jax.prng.threefry_prng_impl, 7))",
        "[0, 7]",
    ),
    "jax.scipy.linalg.tril": ("import jax.scipy\njax.scipy.linalg.tril(jnp.ones((2, 2)))", "[[1, 0], [1, 1]]"),
    "jax.scipy.linalg.triu": ("jax.scipy.linalg.triu(jnp.ones((2, 2)))", "[[1, 1], [0, 1]]"),
    "jax.scipy.linalg.polar_unitary(a)": (
        "jnp.round(jax.scipy.linalg.polar_unitary(3.0 * jnp.eye(2)), 4)",
        "np.eye(2)",
    ),
    "jax.scipy.linalg.polar(maxiter=)": (
        "jnp.round(jax.scipy.linalg.polar(2.0 * jnp.eye(2), method='qdwh', maxiter=10)[1], 4)",
        "2 * np.eye(2)",
    ),
    "jax.scipy.linalg.solve(sym_pos=)": (
        "jax.scipy.linalg.solve(2.0 * jnp.eye(2), jnp.ones(2), sym_pos=True)",
        "[0.5, 0.5]",
    ),
    "jax.scipy.special.sph_harm(m, n, theta, phi, n_max=None)": (
        "from jax.scipy.special import sph_harm\n"
        "i, a = jnp.array([1]), jnp.array([0.3])\n"
        "jnp.round(sph_harm(i, i, a, 2 * a, n_max=1), 5)",
        "np.round(-np.sqrt(3 / 8 / np.pi) * np.sin(0.6) * np.exp(0.3j), 5).astype(np.complex64)[None]",
    ),
    "jax.scipy.special.beta(x=)": ("jnp.round(jax.scipy.special.beta(x=2.0, y=3.0) * 12, 4)", "1.0"),
    "jax.scipy.special.beta(y=)": ("jnp.round(jax.scipy.special.beta(2.0, y=2.0) * 6, 4)", "1.0"),
    "jax.scipy.special.betaln(x=)": ("jnp.round(jnp.exp(jax.scipy.special.betaln(x=2.0, y=3.0)) * 12, 4)", "1.0"),
    "jax.scipy.special.betaln(y=)": ("jnp.round(jnp.exp(jax.scipy.special.betaln(2.0, y=2.0)) * 6, 4)", "1.0"),
    # several devices
    "jax.experimental.PartitionSpec": (
        "from jax.experimental import PartitionSpec as P\ntuple(P('x', None))",
        "('x', None)",
    ),
    "jax.experimental.with_sharding_constraint": (
        "jax.experimental.with_sharding_constraint(jnp.ones(2), jax.sharding.SingleDeviceSharding(jax.devices()[0]))",
        "[1.0, 1.0]",
    ),
    "jax.experimental.pjit.PartitionSpec": (
        "from jax.experimental.pjit import PartitionSpec\ntuple(PartitionSpec('x'))",
        "('x',)",
    ),
    "jax.experimental.pjit.NamedSharding": (
        "from jax.experimental import pjit\n"
        "pjit.NamedSharding(jax.sharding.Mesh(jax.devices(), 'i'), jax.sharding.PartitionSpec()).is_fully_replicated",
        "True",
    ),
    "jax.experimental.pjit.with_sharding_constraint": (
        "from jax.experimental.pjit import with_sharding_constraint\n"
        "with_sharding_constraint(jnp.ones(2), jax.sharding.SingleDeviceSharding(jax.devices()[0]))",
        "[1.0, 1.0]",
    ),
    "jax.experimental.pjit.pjit(in_axis_resources=)": (
        "from jax.experimental import maps, PartitionSpec as P\nfrom jax.experimental.pjit import pjit\n"
        "with maps.Mesh(np.array(jax.devices()), ('d',)):\n"
        "    y = pjit(lambda x: x + 1, in_axis_resources=P('d'), out_axis_resources=None)(jnp.zeros(2))\ny",
        "[1.0, 1.0]",
    ),
    "jax.experimental.pjit.pjit(out_axis_resources=)": (
        "from jax.experimental import pjit\n"
        "with jax.sharding.Mesh(jax.devices(), 'd'):\n"
        "    y = pjit.pjit(lambda x: x + 1, in_axis_resources=None, out_axis_resources=None)(1)\ny",
        "2",
    ),
    "jax.experimental.maps.Mesh": ("from jax.experimental.maps import Mesh\nMesh(jax.devices(), 'i').shape['i']", "1"),
    "jax.experimental.maps.mesh": (
        "from jax.experimental import maps\nwith maps.mesh(np.array(jax.devices()), ('i',)) as m:\n    n = m.size\nn",
        "1",
    ),
    "jax.experimental.maps.xmap": (
        "from jax.experimental.maps import xmap\n"
        "f = xmap(lambda a, b: jax.lax.psum(a, 'batch') * b, (['batch', 'k', ...], {0: 'k'}), ['k', 'batch', ...],\n"
        "         axis_resources={'batch': 'dp'})\n"
        "f(jnp.arange(12).reshape(2, 3, 2), jnp.array([1, 10, 100]))",
        "np.stack([np.arange(12).reshape(2, 3, 2).sum(0) * np.array([[1], [10], [100]])] * 2, 1)",
    ),
    "jax.interpreters.pxla.Mesh": (
        "from jax.interpreters.pxla import Mesh\nMesh(jax.devices(), 'i').axis_names",
        "('i',)",
    ),
    "jax.interpreters.pxla.PartitionSpec": ("tuple(jax.interpreters.pxla.PartitionSpec('x'))", "('x',)"),
    "jax.interpreters.pxla.NamedSharding": ("jax.interpreters.pxla.NamedSharding.__name__", "'NamedSharding'"),
    "jax.interpreters.pxla.device_put": ("jax.interpreters.pxla.device_put(np.ones(2))", "[1.0, 1.0]"),
    "jax.interpreters.xla.device_put": ("jax.interpreters.xla.device_put(np.ones(2), jax.devices()[0])", "[1.0, 1.0]"),
    "jax.sharding.MeshPspecSharding": (
        "from jax.sharding import Mesh, MeshPspecSharding, PartitionSpec as P\n"
        "MeshPspecSharding(Mesh(jax.devices(), 'i'), P('i')).num_devices",
        "1",
    ),
    "jax.sharding.XLACompatibleSharding": (
        "isinstance(jnp.ones(2).sharding, jax.sharding.XLACompatibleSharding)",
        "True",
    ),
    "jax.sharding.use_mesh": (
        "with jax.sharding.use_mesh(jax.make_mesh((1,), ('i',))):\n"
        "    names = jax.sharding.get_abstract_mesh().axis_names\nnames",
        "('i',)",
    ),
    # calls of the host
    "jax.experimental.host_callback.id_tap": (
        "from jax.experimental import host_callback as hcb\nseen = []\n"
        "y = jax.jit(lambda x: hcb.id_tap(lambda a, transforms: seen.append((a['n'] + 0, transforms)), {'n': x}))(3)\n"
        "hcb.barrier_wait()\n[int(y['n']), int(seen[0][0]), seen[0][1]]",
        "[3, 3, ()]",
    ),
    "jax.experimental.host_callback.id_print": (
        "import io\nfrom jax.experimental.host_callback import barrier_wait, id_print\nout = io.StringIO()\n"
        "y = jax.jit(lambda x: id_print(x, result=x + 1, what='loss', output_stream=out))(3)\nbarrier_wait()\n"
        "(int(y), out.getvalue())",
        "(4, 'what: loss\\n3\\n')",
    ),
    "jax.experimental.host_callback.call": (
        "from jax.experimental import host_callback as hcb\n"
        "jax.jit(lambda x: hcb.call(np.cumsum, x, result_shape=x))(jnp.arange(4.0))",
        "[0, 1, 3, 6]",
    ),
    "jax.experimental.host_callback.barrier_wait(logging_name=None)": (
        "from jax.experimental import host_callback\nhost_callback.barrier_wait('test')",
        "None",
    ),
    # backends
    "jax.lib.xla_bridge.get_backend": ("from jax.lib import xla_bridge\nxla_bridge.get_backend().platform", "'cpu'"),
    "jax.lib.xla_bridge.get_compile_options": (
        "jax.lib.xla_bridge.get_compile_options(1, 1).num_replicas",
        "1",
    ),
    "jax.lib.xla_bridge.backends": ("'cpu' in jax.lib.xla_bridge.backends()", "True"),
    "jax.lib.xla_bridge.default_backend": ("jax.lib.xla_bridge.default_backend()", "'cpu'"),
    "jax.lib.xla_bridge.devices": ("jax.lib.xla_bridge.devices()[0].platform", "'cpu'"),
    "jax.lib.xla_bridge.local_devices": ("import jax.lib.xla_bridge as xb\nxb.local_devices()[0].platform", "'cpu'"),
    "jax.lib.xla_bridge.device_count": ("from jax.lib.xla_bridge import device_count\ndevice_count()", "1"),
    "jax.lib.xla_bridge.local_device_count": ("jax.lib.xla_bridge.local_device_count()", "1"),
    "jax.lib.xla_bridge.process_count": ("jax.lib.xla_bridge.process_count()", "1"),
    "jax.lib.xla_bridge.process_index": ("jax.lib.xla_bridge.process_index()", "0"),
    "jax.lib.xla_bridge.host_count": ("jax.lib.xla_bridge.host_count()", "1"),
    "jax.lib.xla_bridge.host_id": ("jax.lib.xla_bridge.host_id()", "0"),
    "jax.lib.xla_bridge.host_ids()": ("jax.lib.xla_bridge.host_ids()", "[0]"),
    # what was never meant to be public
    "jax.util.partial": ("from jax.util import partial\npartial(pow, 2)(3)", "8"),
    "jax.util.prod": ("jax.util.prod([2, 3, 4])", "24"),
    "jax.util.wraps(wrapped, namestr=None, docstr=None)": ("jax.util.wraps(len)(lambda x: x).__name__", "'len'"),
    "jax.util.cache(max_size=4096)": (
        "from jax.util import cache\ncalls = []\nf = cache()(lambda x: calls.append(x))\nf(1)\nf(1)\ncalls",
        "[1]",
    ),
    "jax.util.memoize(fun)": ("calls = []\nf = jax.util.memoize(lambda x: calls.append(x))\nf(1)\nf(1)\ncalls", "[1]"),
    "jax.util.curry(f)": ("jax.util.curry(pow)(2)(5)", "32"),
    "jax.util.safe_map(f, *args)": ("from jax.util import safe_map as map\nmap(pow, [2, 3], [3, 2])", "[8, 9]"),
    "jax.util.safe_zip(*args)": ("jax.util.safe_zip([1, 2], [3, 4])", "[(1, 3), (2, 4)]"),
    "jax.util.unzip2(xys)": ("jax.util.unzip2([(1, 2), (3, 4)])", "((1, 3), (2, 4))"),
    "jax.util.unzip3(xyzs)": ("jax.util.unzip3([])", "((), (), ())"),
    "jax.util.concatenate(xs)": ("jax.util.concatenate([[1], [2, 3]])", "[1, 2, 3]"),
    "jax.util.split_list(args, ns)": ("jax.util.split_list([1, 2, 3, 4], [1, 2])", "[[1], [2, 3], [4]]"),
    "jax.abstract_arrays.ShapedArray": (
        "from jax.abstract_arrays import ShapedArray\nShapedArray((2,), jnp.float32).shape",
        "(2,)",
    ),
    "jax.abstract_arrays.raise_to_shaped(aval, weak_type=None)": (
        "from jax import abstract_arrays\nabstract_arrays.raise_to_shaped(jnp.ones(2).aval).shape",
        "(2,)",
    ),
    "jax.abstract_arrays.make_shaped_array(x)": (
        "jax.abstract_arrays.make_shaped_array(np.ones((2, 3))).shape",
        "(2, 3)",
    ),
    "jax.abstract_arrays.zeros_like_array": ("jax.abstract_arrays.zeros_like_array(np.ones(2))", "[0.0, 0.0]"),
    "jax.abstract_arrays.array_types": ("np.ndarray in jax.abstract_arrays.array_types", "True"),
    "jax.ad_util.Zero": ("from jax.ad_util import Zero\nZero(jnp.ones(2).aval).aval.shape", "(2,)"),
    "jax.ad_util.add_jaxvals": ("jax.ad_util.add_jaxvals(1.0, 2.0)", "3.0"),
    "jax.ad_util.add_jaxvals_p": ("jax.ad_util.add_jaxvals_p.bind(1.0, 2.0)", "3.0"),
    "jax.ad_util.zeros_like_aval": ("jax.ad_util.zeros_like_aval(jnp.ones(2).aval)", "[0.0, 0.0]"),
    "jax.interpreters.batching.not_mapped": ("jax.interpreters.batching.not_mapped", "None"),
    "jax.interpreters.xla.ShapedArray": ("jax.interpreters.xla.ShapedArray((3,), jnp.int32).size", "3"),
    "jax.interpreters.xla.abstractify": ("jax.interpreters.xla.abstractify(np.ones((2, 3))).shape", "(2, 3)"),
    "jax.interpreters.xla.canonicalize_dtype": (
        "jax.interpreters.xla.canonicalize_dtype(np.float64).name",
        "'float32'",
    ),
    # jax.core
    "jax.core.ClosedJaxpr": ("isinstance(jax.make_jaxpr(jnp.sin)(1.0), jax.core.ClosedJaxpr)", "True"),
    "jax.core.Jaxpr": ("isinstance(jax.make_jaxpr(jnp.sin)(1.0).jaxpr, jax.core.Jaxpr)", "True"),
    "jax.core.JaxprEqn": ("isinstance(jax.make_jaxpr(jnp.sin)(1.0).eqns[0], jax.core.JaxprEqn)", "True"),
    "jax.core.Literal": (
        "isinstance(jax.make_jaxpr(lambda x: x + 1)(1.0).eqns[0].invars[1], jax.core.Literal)",
        "True",
    ),
    "jax.core.Primitive": ("jax.core.Primitive('mine').name", "'mine'"),
    "jax.core.Token": ("jax.core.Token.__name__", "'Token'"),
    "jax.core.Var": ("isinstance(jax.make_jaxpr(jnp.sin)(1.0).jaxpr.invars[0], jax.core.Var)", "True"),
    "jax.core.jaxpr_as_fun": ("jax.core.jaxpr_as_fun(jax.make_jaxpr(lambda x: x + 1)(1.0))(2.0)", "[3.0]"),
    "jax.core.subjaxprs": ("len(list(jax.core.subjaxprs(jax.make_jaxpr(jax.jit(jnp.sin))(1.0).jaxpr)))", "1"),
    "jax.core.check_jaxpr": ("jax.core.check_jaxpr(jax.make_jaxpr(jnp.sin)(1.0).jaxpr)", "None"),
    "jax.core.concrete_or_error": ("jax.core.concrete_or_error(int, jnp.array(3), 'a size')", "3"),
    "jax.core.jaxprs_in_params": (
        "len(list(jax.core.jaxprs_in_params(jax.make_jaxpr(jax.jit(jnp.sin))(1.0).eqns[0].params)))",
        "1",
    ),
    "jax.core.no_effects": ("len(jax.core.no_effects)", "0"),
    "jax.core.valid_jaxtype": ("[jax.core.valid_jaxtype(1.0), jax.core.valid_jaxtype('a')]", "[True, False]"),
    "jax.core.get_aval": ("jax.core.get_aval(np.ones((2, 3))).shape", "(2, 3)"),
    "jax.core.get_type": ("jax.core.get_type(1.0).shape", "()"),
    "jax.core.concrete_aval": ("jax.core.concrete_aval(np.ones(4)).shape", "(4,)"),
    "jax.core.raise_to_shaped(aval, weak_type=None)": ("jax.core.raise_to_shaped(jnp.ones(2).aval).shape", "(2,)"),
    "jax.core.full_lower(val)": ("jax.core.full_lower(3)", "3"),
    "jax.core.is_concrete(x)": ("jax.core.is_concrete(jnp.ones(2))", "True"),
    "jax.core.is_constant_dim(d)": ("jax.core.is_constant_dim(3)", "True"),
    "jax.core.is_constant_shape(s)": ("jax.core.is_constant_shape((3, 4))", "True"),
    "jax.core.canonicalize_shape(shape)": ("jax.core.canonicalize_shape([np.int64(2), 3])", "(2, 3)"),
    "jax.core.dimension_as_value(d)": ("jax.core.dimension_as_value(3)", "3"),
    "jax.core.definitely_equal(d1, d2)": ("jax.core.definitely_equal(3, 3)", "True"),
    "jax.core.symbolic_equal_dim(d1, d2)": ("jax.core.symbolic_equal_dim(3, 4)", "False"),
    "jax.core.non_negative_dim(d)": ("jax.core.non_negative_dim(-2)", "0"),
    "jax.core.Shape": ("isinstance((2, 3), jax.core.Shape)", "True"),
    "jax.core.DimSize": ("isinstance(2, jax.core.DimSize)", "True"),
    "jax.core.AxisName": ("isinstance('batch', jax.core.AxisName)", "True"),
    "jax.core.AxisSize": ("isinstance(2, jax.core.AxisSize)", "True"),
    "jax.core.axis_frame": (
        "jax.vmap(lambda x: x * jax.core.axis_frame('i').size, axis_name='i')(jnp.ones(3))",
        "[3.0, 3.0, 3.0]",
    ),
    **{
        f"jax.core.{name}": (f"jax.core.{name}.__name__", repr(name))
        for name in [
            "AbstractToken",
            "TraceTag",
            "mapped_aval",
            "unmapped_aval",
            "DebugInfo",
            "DropVar",
            "Effect",
            "InconclusiveDimensionOperation",
            "JaxprTypeError",
            "find_top_trace",
            "get_opaque_trace_state",
            "new_jaxpr_eqn",
            "primal_dtype_to_tangent_dtype",
            "ConcretizationTypeError",
            "TracerArrayConversionError",
            "TracerIntegerConversionError",
            "UnexpectedTracerError",
        ]
    },
    "jax.core.set_current_trace": ("callable(jax.core.set_current_trace)", "True"),
    "jax.core.take_current_trace": ("callable(jax.core.take_current_trace)", "True"),
    "jax.core.gensym": ("callable(jax.core.gensym())", "True"),
    "jax.core.nonempty_axis_env_DO_NOT_USE": ("jax.core.nonempty_axis_env_DO_NOT_USE()", "False"),
    "jax.core.unsafe_am_i_under_a_jit_DO_NOT_USE": ("jax.core.unsafe_am_i_under_a_jit_DO_NOT_USE()", "False"),
    "jax.core.unsafe_am_i_under_a_vmap_DO_NOT_USE": ("jax.core.unsafe_am_i_under_a_vmap_DO_NOT_USE()", "False"),
    "jax.core.unsafe_get_axis_names_DO_NOT_USE": ("list(jax.core.unsafe_get_axis_names_DO_NOT_USE())", "[]"),
    "jax.core.Effects": ("isinstance(set(), jax.core.Effects.__origin__)", "True"),
}
