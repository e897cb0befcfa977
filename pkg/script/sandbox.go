package script

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// quickjs is the engine. It is a file of the npm package that package.json names.
//
//go:generate sh -c "npm ci && cp node_modules/quickjs-wasi/quickjs.wasm ."
//go:embed quickjs.wasm
var quickjs []byte

// sandbox is the engine, compiled for the processor, and the functions that it may call.
type sandbox struct {
	wazero.Runtime
	engine wazero.CompiledModule
}

// compiled returns the sandbox of the process. The first call compiles the engine, which takes 0.6 s.
var compiled = sync.OnceValues(func() (*sandbox, error) {
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	module, err := meter(quickjs, "env", "host_interrupt")
	if err != nil {
		return nil, err
	}
	s := &sandbox{Runtime: wazero.NewRuntime(ctx)}
	if s.engine, err = s.CompileModule(ctx, module); err != nil {
		return nil, fmt.Errorf("compiling the engine: %w", err)
	}
	hosts := map[string]wazero.HostModuleBuilder{}
	for _, f := range s.engine.ImportedFunctions() {
		from, name, _ := f.Import()
		if hosts[from] == nil {
			hosts[from] = s.NewHostModuleBuilder(from)
		}
		function := imports[name]
		if function == nil {
			function = func(context.Context, api.Module, []uint64) { panic("the engine must not call " + name) }
		}
		hosts[from].NewFunctionBuilder().WithGoModuleFunction(function, f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	for _, host := range hosts {
		if _, err := host.Instantiate(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
})

// WarmUp compiles the engine, unless a call has done so.
func WarmUp() error {
	_, err := compiled()
	return err
}

// passes is the number of passes through loops after which the engine looks at the clock: well below a millisecond.
const passes = 10000

// allowance is what a call may use.
type allowance struct {
	memory uint64 // bytes
	passes int64  // through loops
	all    bool   // it is all that a call may ever have: passes is not looked at
	more   bool   // the call wanted more
}

// allowanceKey is the key of a context's *allowance.
type allowanceKey struct{}

// imports are the functions that the engine may call. The stack has the arguments, and then the result.
var imports = map[string]api.GoModuleFunc{
	// host_interrupt() -> passes (see meter)
	"host_interrupt": func(ctx context.Context, _ api.Module, stack []uint64) {
		if ctx.Err() != nil {
			panic(context.Cause(ctx))
		}
		allowed, _ := ctx.Value(allowanceKey{}).(*allowance)
		if !allowed.all {
			if allowed.passes -= passes; allowed.passes <= 0 {
				allowed.more = true
			}
			if allowed.more {
				panic(errMore)
			}
		}
		runtime.Gosched() // requests that need the processor for moments go first
		stack[0] = passes
	},
	// clock_time_get(clock, precision, *time) -> error number
	"clock_time_get": func(_ context.Context, m api.Module, stack []uint64) {
		m.Memory().WriteUint64Le(api.DecodeU32(stack[2]), uint64(time.Now().UnixNano()))
		stack[0] = 0
	},
	// random_get(*bytes, length) -> error number
	"random_get": func(_ context.Context, m api.Module, stack []uint64) {
		into, _ := m.Memory().Read(api.DecodeU32(stack[0]), api.DecodeU32(stack[1]))
		_, _ = rand.Read(into) // it never fails
		stack[0] = 0
	},
	// host_get_timezone_offset(time's upper half, lower half) -> seconds
	"host_get_timezone_offset": func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = 0 },
}
