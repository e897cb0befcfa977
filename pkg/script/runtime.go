package script

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// instance is a program that was set up, in an instance of the engine of its own.
type instance struct {
	module    api.Module
	memory    *memory
	functions map[string]api.Function
	context   uint64 // addresses of the engine's context, and of 16 bytes
	scratch   uint64
	main      uint64 // the value that is called for each call

	size  uint32 // of the memory after the set-up
	saved []byte // of that memory, from dataStart on; nil if the instance is not to be kept

}

// What is known about quickjs.wasm.
const (
	// dataStart is where the stack ends, which grows down.
	dataStart = 1 << 20
	// stackLimit is how much of the stack programs may use. The rest is for the engine's functions that do not check.
	stackLimit = dataStart / 4
	// randomState is the offset of the state of Math.random in a context.
	randomState = 280
	// intrinsics are the objects that programs find: Date, eval, RegExp, JSON, and Map and Set.
	intrinsics = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5

	// The tags of some values, which are in their upper half.
	tagUndefined = 3
	tagException = 6
)

const (
	// spare is how much memory a call has before the instance has to ask for more.
	spare = 1 << 20
	// keptMost is the most memory of an instance that is kept, in bytes.
	keptMost = 4 << 20
	// resultMost is the most bytes of a result, or of the text of an exception.
	resultMost = 1 << 20
)

// newInstance sets a program up. The error is as of call.
func newInstance(ctx context.Context, p *Program, limits Limits, allowed *allowance) (*instance, error) {
	config, err := p.Config()
	if err != nil {
		return nil, err
	}
	sandbox, err := compiled()
	if err != nil {
		return nil, err
	}
	memory, err := newMemory(limits.Memory)
	if err != nil {
		return nil, err
	}
	memory.allowed = allowed
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Time, ErrTime)
	defer cancel()
	ctx = context.WithValue(ctx, allowanceKey{}, allowed)
	module, err := sandbox.InstantiateModule(experimental.WithMemoryAllocator(ctx, memory), sandbox.engine,
		wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		memory.Free()
		return nil, failure(ctx, err)
	}
	i := &instance{module: module, memory: memory, functions: map[string]api.Function{}}
	if err := i.setUp(ctx, p, config, limits.Memory); err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

// close frees what the instance has.
func (i *instance) close() {
	_ = i.module.Close(context.Background()) // it has no files
}

// run runs a function of the engine.
func (i *instance) run(ctx context.Context, name string, arguments ...uint64) (uint64, error) {
	f := i.functions[name]
	if f == nil {
		f = i.module.ExportedFunction(name)
		i.functions[name] = f
	}
	stack := append(make([]uint64, 0, 8), arguments...)[:max(1, len(arguments))]
	if err := f.CallWithStack(ctx, stack); err != nil {
		return 0, failure(ctx, err)
	}
	return stack[0], nil
}

// failure returns the error of a call that ended in the middle.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	trap, _, _ := strings.Cut(err.Error(), "\n") // without the stack
	return fmt.Errorf("%w: %s", ErrEngine, trap)
}

// setUp makes a context, evaluates the program and calls what it evaluates to.
func (i *instance) setUp(ctx context.Context, p *Program, config string, limit int) error {
	failed, err := i.run(ctx, "qjs_init2", intrinsics)
	if err != nil {
		return err
	}
	if failed != 0 {
		return ErrMemory
	}
	for function, n := range map[string]int{
		"qjs_set_memory_limit": limit, "qjs_set_max_stack_size": stackLimit,
	} {
		if _, err := i.run(ctx, function, uint64(n)); err != nil {
			return err
		}
	}
	if i.context, err = i.run(ctx, "qjs_get_context_ptr"); err != nil {
		return err
	}
	if i.scratch, err = i.allocate(ctx, 16); err != nil {
		return err
	}
	source, err := i.text(ctx, p.Source)
	if err != nil {
		return err
	}
	name, err := i.text(ctx, p.Name)
	if err != nil {
		return err
	}
	set, err := i.value(ctx, "JS_Eval", i.context, source, uint64(len(p.Source)), name, 0)
	if err != nil {
		return err
	}
	if i.main, err = i.apply(ctx, set, config); err != nil {
		return err
	}
	return i.save(ctx)
}

// save makes the present content of the memory the one that reset brings back.
func (i *instance) save(ctx context.Context) error {
	// Nothing is used after the first block that has no other room.
	end, err := i.run(ctx, "malloc", spare)
	if err != nil {
		return err
	}
	if end == 0 {
		return ErrMemory
	}
	if _, err := i.run(ctx, "free", end); err != nil {
		return err
	}
	memory := i.module.Memory()
	i.size = memory.Size()
	if i.size > keptMost {
		return nil
	}
	used, _ := memory.Read(dataStart, uint32(end)-dataStart)
	i.saved = append([]byte(nil), used...)
	return nil
}

// reset brings the saved content of the memory back. It reports false if it cannot, because the memory has grown or
// was too large to be saved: then the instance must be closed.
func (i *instance) reset() bool {
	return i.saved != nil && i.module.Memory().Size() == i.size && i.module.Memory().Write(dataStart, i.saved)
}

// allocate returns the address of n new bytes.
func (i *instance) allocate(ctx context.Context, n int) (uint64, error) {
	address, err := i.run(ctx, "js_malloc", i.context, uint64(n))
	if err == nil && address == 0 {
		err = ErrMemory
	}
	return address, err
}

// text copies a text into the memory, with a zero byte after it.
func (i *instance) text(ctx context.Context, s string) (uint64, error) {
	address, err := i.allocate(ctx, len(s)+1)
	if err != nil {
		return 0, err
	}
	i.module.Memory().WriteString(uint32(address), s)
	i.module.Memory().WriteByte(uint32(address)+uint32(len(s)), 0)
	return address, nil
}

// value runs a function that returns a value, or throws.
func (i *instance) value(ctx context.Context, name string, arguments ...uint64) (uint64, error) {
	v, err := i.run(ctx, name, arguments...)
	if err == nil && v>>32 == tagException {
		err = i.exception(ctx)
	}
	return v, err
}

// apply calls a function with the value of a JSON text.
func (i *instance) apply(ctx context.Context, function uint64, json string) (uint64, error) {
	text, err := i.text(ctx, json)
	if err != nil {
		return 0, err
	}
	argument, err := i.value(ctx, "JS_ParseJSON", i.context, text, uint64(len(json)), text)
	if err != nil {
		return 0, err
	}
	if _, err := i.run(ctx, "js_free", i.context, text); err != nil {
		return 0, err
	}
	i.module.Memory().WriteUint64Le(uint32(i.scratch), argument)
	return i.value(ctx, "JS_Call", i.context, function, tagUndefined<<32, 1, i.scratch)
}

// exception returns the exception that was thrown.
func (i *instance) exception(ctx context.Context) error {
	thrown, err := i.run(ctx, "JS_GetException", i.context)
	if err != nil {
		return err
	}
	text, ok, err := i.string(ctx, thrown)
	switch {
	case err != nil:
		return err
	case !ok, text == "InternalError: out of memory", text == "null": // there is no memory for an error, either
		return ErrMemory
	case text == "RangeError: Maximum call stack size exceeded":
		return ErrStack
	}
	return &Exception{Text: text}
}

// string returns a value as a string, with U+FFFD for lone surrogates, cut after resultMost bytes and one more. It reports
// false if the value has none, and an exception was thrown.
func (i *instance) string(ctx context.Context, v uint64) (string, bool, error) {
	address, err := i.run(ctx, "JS_ToCStringLen2", i.context, i.scratch, v, 0)
	if err != nil || address == 0 {
		return "", false, err
	}
	length, _ := i.module.Memory().ReadUint32Le(uint32(i.scratch))
	text, ok := i.module.Memory().Read(uint32(address), min(length, resultMost+1))
	if !ok {
		return "", false, fmt.Errorf("%w: a text is outside its memory", ErrEngine)
	}
	return strings.ToValidUTF8(string(text), "\uFFFD"), true, nil
}

// call calls the program. After an error the instance must be closed, else it must be reset.
func (i *instance) call(ctx context.Context, argument string, limits Limits, allowed *allowance) (string, error) {
	i.memory.allowed = allowed
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Time, ErrTime)
	defer cancel()
	ctx = context.WithValue(ctx, allowanceKey{}, allowed)
	i.module.Memory().WriteUint64Le(uint32(i.context)+randomState, rand.Uint64()|1)
	value, err := i.apply(ctx, i.main, argument)
	if err != nil {
		return "", err
	}
	result, ok, err := i.string(ctx, value)
	if err == nil && !ok {
		err = i.exception(ctx)
	}
	if len(result) > resultMost {
		return "", ErrResult
	}
	return result, err
}
