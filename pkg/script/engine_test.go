package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/testkit"
	"settee/pkg/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long is a limit that no call of a test reaches.
const long = 10 * time.Minute

// little is a limit of memory for calls that fill it. They take as long as it is large.
func little(l *script.Limits) { l.Memory = 16 << 20 }

// engine returns an engine for a test. configure, if not nil, changes its limits.
func engine(t testing.TB, configure func(*script.Limits)) *script.Engine {
	limits := script.Limits{Time: long, Memory: 64 << 20, Instances: 4, Idle: long}
	if configure != nil {
		configure(&limits)
	}
	e := script.New(func() script.Limits { return limits }, nil)
	t.Cleanup(e.Close)
	return e
}

// program returns a program whose calls run a function body.
func program(body string) *script.Program {
	return &script.Program{
		Key: body, Name: "_design/test", Source: "(function (config) { return function (argument) {" + body + "\n}; })",
		Config: func() (string, error) { return `{"of":"the program"}`, nil },
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	e := engine(t, nil)
	for body, want := range map[string]string{
		`return config.of`:                            "the program",
		`return argument.list[1] + ""`:                "2",
		`return JSON.stringify(argument)`:             `{"list":[1,2],"text":"ä\u0000€😀"}`,
		`return argument.text`:                        "ä\x00€😀",
		`return typeof Promise + typeof Proxy`:        "undefinedundefined",
		`return typeof std + typeof os`:               "undefinedundefined",
		`return new Date(0).toISOString()`:            "1970-01-01T00:00:00.000Z",
		`return /a(.)c/.exec("abc")[1]`:               "b",
		`return "\ud800"`:                             "\uFFFD",
		`try { missing } catch (e) { return e.name }`: "ReferenceError",
	} {
		for range 2 {
			got, err := e.Call(t.Context(), program(body), `{"list":[1,2],"text":"ä\u0000€😀"}`)
			require.NoError(t, err, body)
			assert.Equal(t, want, got, body)
		}
	}
}

func TestRandomNumbersDiffer(t *testing.T) {
	t.Parallel()
	e, seen := engine(t, nil), map[string]bool{}
	for range 10 {
		got, err := e.Call(t.Context(), program(`return String(Math.random())`), `{}`)
		require.NoError(t, err)
		seen[got] = true
	}
	assert.Len(t, seen, 10)
}

// TestCallsDoNotSeeEachOther calls programs again that have changed all that they could reach.
func TestCallsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	e := engine(t, func(l *script.Limits) { l.Instances = 1 })
	for _, body := range []string{
		`left = typeof left === "undefined" ? 1 : left + 1; return String(left)`,
		`config.left = (config.left || 0) + 1; return String(config.left)`,
		`Array.prototype.left = ([].left || 0) + 1; return String([].left)`,
		`var f = arguments.callee; f.left = (f.left || 0) + 1; return String(f.left)`,
		`var n = (JSON.n || 0) + 1; JSON = {n: n}; return String(n)`,
	} {
		for range 3 {
			got, err := e.Call(t.Context(), program(body), `{}`)
			require.NoError(t, err, body)
			assert.Equal(t, "1", got, body)
		}
	}
}

func TestBoundOfMemory(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	e := engine(t, little)
	for _, body := range []string{
		`var a = []; while (true) a.push({})`,
		`var a = []; while (true) a.push("x".repeat(1000) + a.length)`,
		`var a = {}; for (var i = 0; true; i++) a["k" + i] = i`,
		`var f = function () {}; while (true) f = f.bind(null)`,
		`return "x".repeat(1 << 28)`,
		`var s = new Array(1 << 20).join("{},"); return JSON.parse("[" + s + "{}]").length + ""`,
	} {
		_, err := e.Call(t.Context(), program(body), `{}`)
		var thrown *script.Exception
		if !errors.As(err, &thrown) { // the engine may refuse a length at once
			require.ErrorIs(t, err, script.ErrMemory, body)
		}
		require.ErrorContains(t, err, "_design/test", body)
	}
	got, err := e.Call(t.Context(), program(`try { var a = []; while (true) a.push({}) } catch (e) { a = null; return "caught" }`), `{}`)
	require.NoError(t, err)
	assert.Equal(t, "caught", got)
}

func TestBoundOfStack(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	e := engine(t, nil)
	for _, body := range []string{
		`function f() { f() } f()`,
		`var o = {toString: function () { return o + "" }}; return o + ""`,
		`function f() { [1].forEach(f) } f()`,
		`var o = {get x() { return o.x }}; return o.x`,
		`var a = []; for (var i = 0; i < 100000; i++) a = [a]; return JSON.stringify(a)`,
		`var a = []; for (var i = 0; i < 100000; i++) a = [a]; return String(a)`,
		`"x".replace(/x/, function f() { return "x".replace(/x/, f) })`,
		// with many variables
		`var s = "var a0 = 0"; for (var i = 1; i < 2000; i++) s += ",a" + i + " = 0"; g = new Function(s + "; g()"); g()`,
		// the engine's own recursions
		`return eval(new Array(100000).join("("))`,
		`var s = "["; while (s.length < 1 << 22) s += s; return JSON.parse(s + "]") + ""`,
		`var a = []; for (var i = 0; i < 100000; i++) a = [a]; return a.flat(Infinity) + ""`,
	} {
		_, err := e.Call(t.Context(), program(body), `{}`)
		require.ErrorIs(t, err, script.ErrStack, body)
		require.ErrorContains(t, err, "_design/test", body)
	}
	_, err := e.Call(t.Context(), program(`return new RegExp(new Array(100000).join("(?:")) + ""`), `{}`)
	require.ErrorAs(t, err, new(*script.Exception))
	got, err := e.Call(t.Context(), program(`function f() { f() } try { f() } catch (e) { return "caught" }`), `{}`)
	require.NoError(t, err)
	assert.Equal(t, "caught", got)
}

// TestBoundOfTime has loops of programs, and loops inside functions of the engine.
func TestBoundOfTime(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	e := engine(t, func(l *script.Limits) { l.Time = 100 * time.Millisecond })
	for _, body := range []string{
		`while (true);`,
		`while (true) { try { while (true); } catch (e) {} finally { continue } }`,
		`return [].indexOf.call({length: Math.pow(2, 53) - 1}, 1) + ""`,
		`return new Array(4294967295).join("").length + ""`,
		`var a = new Array(1 << 24).join("a"), b = new Array(1 << 23).join("a") + "b"; return a.indexOf(b) + ""`,
		`return /(x+x+)+y/.test(new Array(50).join("x")) + ""`,
		`var s = new Array(1 << 20).join("a"), a = []; for (var i = 0; i < 1e5; i++) a.push(s); while (true) a.sort()`,
		`var s = "x".repeat(1 << 24); while (true) s.concat("a")`,
	} {
		_, err := e.Call(t.Context(), program(body), `{}`)
		require.ErrorIs(t, err, script.ErrTime, body)
		require.ErrorContains(t, err, "_design/test", body)
	}
	setUp := &script.Program{Name: "_design/test", Source: "while (true);", Config: func() (string, error) { return "{}", nil }}
	_, err := e.Call(t.Context(), setUp, `{}`)
	require.ErrorIs(t, err, script.ErrTime)
}

// TestCanceled cancels a call that has begun: Config is called for it.
func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	endless := program(`while (true);`)
	endless.Config = func() (string, error) { cancel(); return "{}", nil }
	_, err := engine(t, nil).Call(ctx, endless, `{}`)
	require.ErrorIs(t, err, context.Canceled)
}

// TestLargeCalls has calls that need more memory than a runtime has after the set-up.
func TestLargeCalls(t *testing.T) {
	t.Parallel()
	e, large := engine(t, nil), `"`+strings.Repeat("x", 4<<20)+`"`
	p := program(`left = typeof left === "undefined" ? 1 : left + 1; return left + String(argument.length)`)
	for range 2 {
		for argument, want := range map[string]string{large: fmt.Sprint(1, 4<<20), `"x"`: "1 1"} {
			got, err := e.Call(t.Context(), p, argument)
			require.NoError(t, err)
			assert.Equal(t, strings.ReplaceAll(want, " ", ""), got)
		}
	}
}

// TestCallsThatNeedMore has calls that are begun again with more memory or time. What a call does with the error for the
// memory that it did not get at first is not seen.
func TestCallsThatNeedMore(t *testing.T) {
	t.Parallel()
	e := engine(t, nil)
	for _, body := range []string{
		`try { return "x".repeat(1 << 24) ? "whole" : "" } catch (e) { return "caught" }`,
		`var a = []; for (var i = 0; i < 1 << 20; i++) a.push(i); return "whole"`,
		`for (var i = 0; i < 3e6; i++); return "whole"`,
		`left = typeof left === "undefined" ? "whole" : "left"; for (var i = 0; i < 3e6; i++); return left`,
	} {
		for range 2 {
			got, err := e.Call(t.Context(), program(body), `{}`)
			require.NoError(t, err, body)
			require.Equal(t, "whole", got, body)
		}
	}
}

func TestBoundOfResults(t *testing.T) {
	t.Parallel()
	e := engine(t, nil)
	got, err := e.Call(t.Context(), program(`return "x".repeat(1 << 20)`), `{}`)
	require.NoError(t, err)
	require.Len(t, got, 1<<20)
	_, err = e.Call(t.Context(), program(`return "x".repeat((1 << 20) + 1)`), `{}`)
	require.ErrorIs(t, err, script.ErrResult)
	_, err = e.Call(t.Context(), program(`throw "x".repeat(1 << 22)`), `{}`)
	var thrown *script.Exception
	require.ErrorAs(t, err, &thrown)
	require.Len(t, thrown.Text, 1<<20+1)
}

// TestOwnersDoNotWaitForOneAnother calls endless programs of one owner, and then programs of another one, which end.
func TestOwnersDoNotWaitForOneAnother(t *testing.T) {
	t.Parallel()
	large := make(chan struct{}, 100)
	limits := script.Limits{Time: long, Memory: 64 << 20, Instances: 4, Idle: long}
	e := script.New(func() script.Limits { return limits }, func(_ context.Context, bytes int64) (func(), error) {
		if bytes > 8<<20 {
			large <- struct{}{}
		}
		return func() {}, nil
	})
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var hostile, others sync.WaitGroup
	for i := range 50 {
		endless := program(fmt.Sprintf(`while (true) %d`, i%10))
		endless.Owner = "hostile"
		hostile.Go(func() {
			_, err := e.Call(ctx, endless, `{}`)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	<-large // one of them has a place for large calls, which it keeps
	for range 4 {
		others.Go(func() {
			innocent := program(`return "x"`)
			innocent.Owner = "another"
			for range 10 {
				got, err := e.Call(t.Context(), innocent, `{}`)
				assert.Equal(t, "x", got, "%v", err)
			}
		})
	}
	others.Wait()
	cancel()
	hostile.Wait()
}

// TestRefused calls a program that fails until it is refused. Another one, and the same one with another key, are called.
func TestRefused(t *testing.T) {
	t.Parallel()
	e := engine(t, little)
	fills := program(`try { if (argument.fills) { var a = []; while (true) a.push({}) } } catch (e) { if (argument.throws) throw e } return "x"`)
	for _, argument := range []string{`{"fills":true,"throws":true}`, `{"fills":true}`, `{"fills":true,"throws":true}`} {
		_, err := e.Call(t.Context(), fills, argument)
		require.NotErrorAs(t, err, new(*script.RefusedError))
	}
	_, err := e.Call(t.Context(), fills, `{}`)
	var refused *script.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, script.ErrMemory)
	require.Equal(t, "_design/test: it needed more memory than it may have repeatedly, and is not called again until "+
		refused.Until.UTC().Format(time.RFC3339), err.Error())
	repaired := *fills
	repaired.Key = "repaired"
	got, err := e.Call(t.Context(), &repaired, `{}`)
	require.NoError(t, err)
	require.Equal(t, "x", got)
}

// TestReserve counts the reserved bytes, which no call exceeds, and which are all given back.
func TestReserve(t *testing.T) {
	t.Parallel()
	var reserved, most, refusals atomic.Int64
	refused := errors.New("no memory")
	limits := script.Limits{Time: long, Memory: 16 << 20, Instances: 4, Idle: long}
	e := script.New(func() script.Limits { return limits }, func(_ context.Context, bytes int64) (func(), error) {
		if refusals.Load() > 0 {
			return nil, refused
		}
		most.Store(max(most.Load(), reserved.Add(bytes)))
		return func() { reserved.Add(-bytes) }, nil
	})
	_, err := e.Call(t.Context(), program(`return "x"`), `{}`)
	require.NoError(t, err)
	require.Positive(t, most.Load())
	require.Less(t, most.Load(), int64(16<<20))
	require.Zero(t, reserved.Load(), "a call gives back what it has reserved")
	_, err = e.Call(t.Context(), program(`var a = []; while (true) a.push({})`), `{}`)
	require.ErrorIs(t, err, script.ErrMemory)
	require.GreaterOrEqual(t, most.Load(), int64(16<<20))
	require.Zero(t, reserved.Load())
	_, err = e.Call(t.Context(), program(`return "x".repeat(1 << 22).length + ""`), `{}`)
	require.NoError(t, err)
	require.Zero(t, reserved.Load())
	refusals.Store(1)
	for _, body := range []string{`return "x"`, `return "y"`} {
		_, err = e.Call(t.Context(), program(body), `{}`)
		require.ErrorIs(t, err, refused)
	}
	e.Close()
	require.Zero(t, reserved.Load())
}

// TestLargeProgramsAreNotKept sets a program up that needs much memory.
func TestLargeProgramsAreNotKept(t *testing.T) {
	t.Parallel()
	e, setUps := engine(t, nil), 0
	p := program(`return kept.length + ""`)
	p.Source = `(function (config) { kept = "x".repeat(1 << 21); return function () { return kept.length + "" } })`
	p.Config = func() (string, error) { setUps++; return "{}", nil }
	for range 3 {
		got, err := e.Call(t.Context(), p, `{}`)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(1<<21), got)
	}
	require.Equal(t, 3, setUps)
}

// TestMissingParts uses parts of the language that are left out. Nothing of it may end the process.
func TestMissingParts(t *testing.T) {
	t.Parallel()
	e := engine(t, nil)
	for _, body := range []string{
		`return (async function () { await 1 })() + ""`,
		`import("x").then(function () {}); return ""`,
		`return 10n ** 100000n + ""`,
		`return new Uint8Array(8) + ""`,
		`function* f() { while (true) yield f } for (var g of f()) return typeof g; return ""`,
	} {
		_, err := e.Call(t.Context(), program(body), `{}`)
		for _, bound := range []error{script.ErrTime, script.ErrMemory, script.ErrStack, script.ErrBusy} {
			require.NotErrorIs(t, err, bound, body)
		}
		got, err := e.Call(t.Context(), program(`return "x"`), `{}`)
		require.NoError(t, err)
		assert.Equal(t, "x", got)
	}
}

// FuzzArgument passes texts to a program and back.
func FuzzArgument(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,2.5e3,true,null],"":{}}`, `"a\u0000b"`, "\"a\x00b\"", "\"\u2028\u2029\"", `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`,
		"\"\xff\"", "\"\xed\xa0\x80\"", "\"\xf0\x9f\"", "\x00", "", "{}\x00", " 1 ", `{"__proto__":{"a":1},"constructor":2}`, `-0`,
		`123456789012345678901234567890`, `1e400`, `[[[[[[]]]]]]`, `{"a":1,"a":2}`, `tru`, "\ufeff1", `"` + strings.Repeat("ä€😀", 100) + `"`,
	} {
		f.Add(text)
	}
	e := engine(f, nil)
	p := program(`return JSON.stringify(argument)`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := e.Call(t.Context(), p, text)
		if !json.Valid([]byte(text)) {
			require.Error(t, err)
			return
		}
		var want, have any
		if json.Unmarshal([]byte(text), &want) != nil || errors.Is(err, script.ErrStack) {
			return // a number that is out of range, or nested too deeply
		}
		if !utf8.ValidString(text) && errors.As(err, new(*script.Exception)) {
			return
		}
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(got), &have))
		if utf8.ValidString(text) {
			require.Equal(t, want, have)
		}
	})
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	e := engine(t, nil)
	for body, want := range map[string]string{
		`throw new TypeError("no")`: "TypeError: no",
		`throw "text"`:              "text",
		`throw {}`:                  "[object Object]",
		`return {toString: function () { throw "inner" }}`: "inner",
	} {
		_, err := e.Call(t.Context(), program(body), `{}`)
		var thrown *script.Exception
		require.ErrorAs(t, err, &thrown, body)
		assert.Equal(t, want, thrown.Text, body)
	}
	_, err := e.Call(t.Context(), program(`return "x"`), `{`)
	require.ErrorAs(t, err, new(*script.Exception), "an argument that is no JSON")
	wrong := errors.New("no configuration")
	_, err = e.Call(t.Context(), &script.Program{Config: func() (string, error) { return "", wrong }}, `{}`)
	require.ErrorIs(t, err, wrong)
}

// TestManyAtATime calls more programs than there are runtimes, some of which fail.
func TestManyAtATime(t *testing.T) {
	t.Parallel()
	e := engine(t, func(l *script.Limits) { l.Instances, l.Idle = 3, time.Nanosecond })
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				body := fmt.Sprintf(`var n = argument.n; if (n %% 7 === 0) throw "seven"; return String(n + %d)`, i%4)
				got, err := e.Call(t.Context(), program(body), fmt.Sprintf(`{"n":%d}`, j))
				if j%7 == 0 {
					assert.ErrorContains(t, err, "seven")
				} else if assert.NoError(t, err) {
					assert.Equal(t, fmt.Sprint(j+i%4), got)
				}
			}
		})
	}
	all.Wait()
}

func TestBusy(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	var limit atomic.Int64
	limit.Store(int64(long))
	e := script.New(func() script.Limits {
		return script.Limits{Time: time.Duration(limit.Load()), Memory: 64 << 20, Instances: 1, Idle: long}
	}, nil)
	defer e.Close()
	slow := program(`return "x"`)
	slow.Config = func() (string, error) {
		close(entered)
		<-leave
		return "{}", nil
	}
	var all sync.WaitGroup
	all.Go(func() {
		_, err := e.Call(t.Context(), slow, `{}`)
		assert.NoError(t, err)
	})
	<-entered
	limit.Store(int64(time.Millisecond)) // of calls from now on
	_, err := e.Call(t.Context(), program(`return "y"`), `{}`)
	require.ErrorIs(t, err, script.ErrBusy)
	limit.Store(int64(long))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Call(ctx, program(`return "y"`), `{}`)
	require.ErrorIs(t, err, context.Canceled)
	close(leave)
	all.Wait()
}

// TestClosed calls a program after the engine was closed: its runtime is not kept.
func TestClosed(t *testing.T) {
	t.Parallel()
	e := engine(t, nil)
	e.Close()
	got, err := e.Call(t.Context(), program(`return "x"`), `{}`)
	require.NoError(t, err)
	assert.Equal(t, "x", got)
}

// BenchmarkSetUp sets a program up for each call.
func BenchmarkSetUp(b *testing.B) {
	e := engine(b, nil)
	p := program(`return "x"`)
	p.Key = ""
	call := func() {
		_, err := e.Call(b.Context(), p, "{}")
		require.NoError(b, err)
	}
	call() // compiles the engine
	for b.Loop() {
		call()
	}
}

// BenchmarkCall filters documents of 1 KB, some in one call.
func BenchmarkCall(b *testing.B) {
	e := engine(b, nil)
	p := program(`return JSON.stringify(argument.map(function (doc) { return doc.type === "wanted" }))`)
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n, " documents"), func(b *testing.B) {
			docs := strings.Repeat(`,{"_id":"some document","type":"wanted","text":"`+strings.Repeat("lorem ipsum ", 80)+`"}`, n)
			for b.Loop() {
				_, err := e.Call(b.Context(), p, "["+docs[1:]+"]")
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/document")
		})
	}
}
