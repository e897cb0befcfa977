package browsertest

import (
	"context"
	"os"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Size makes the page so many pixels wide and high, with colors for a light or a dark surrounding.
func (p *Page) Size(width, height int64, dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.do("changing the size of the page", chromedp.Steps(
		chromedp.EmulateViewport(width, height),
		call(emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true}), // they would be in pictures
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}),
	))
}

// ForgetCookies removes the cookies of the page, as if its session had ended.
func (p *Page) ForgetCookies() {
	p.t.Helper()
	p.do("removing the cookies", call(network.ClearBrowserCookies, cdp.Empty{}))
}

// Text returns the value of a JavaScript expression that is a text.
func (p *Page) Text(expression string) string {
	p.t.Helper()
	return run(p, "evaluating "+expression, chromedp.Evaluate[string](expression))
}

// Memory is what the browser keeps for a page. Nodes are also those that are in no document. Heap is in bytes.
type Memory struct {
	Documents, Nodes, Listeners, Heap int64
}

// Memory returns what the browser keeps for the page after it has collected what nothing refers to.
func (p *Page) Memory() Memory {
	p.t.Helper()
	p.do("collecting garbage", call(heapprofiler.CollectGarbage, cdp.Empty{}))
	counts := run(p, "counting nodes", result(memory.GetDOMCounters, cdp.Empty{}))
	heap := run(p, "measuring the heap", result(runtime.GetHeapUsage, cdp.Empty{}))
	return Memory{counts.Documents, counts.Nodes, counts.JsEventListeners, int64(heap.UsedSize)}
}

// Screenshot returns the whole page as a PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	return run(p, "taking a screenshot", chromedp.FullScreenshot(100))
}

// call is a step that calls a command of the browser.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, command, params)
		return chromedp.Void{}, err
	}
}

// result is a step whose value is the result of a command of the browser.
func result[P, R any](command cdp.Command[P, R], params P) chromedp.Action[R] {
	return func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) }
}

// Accessible fails the test if axe-core finds a violation of its rules in the page.
func (p *Page) Accessible() {
	p.t.Helper()
	source, err := os.ReadFile(installed(p.t, "axe-core", "axe.min.js"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.do("loading axe-core", chromedp.Evaluate[chromedp.Void]("window.axe || (() => {"+string(source)+"})(); undefined"))
	p.do("running axe-core", chromedp.Evaluate[chromedp.Void](
		`window.found = undefined; axe.run().then(r => window.found = r.violations.map(v => v.id + ": " + v.help + "\n" + v.nodes.map(n => "  " + n.html + "\n  " + n.failureSummary).join("\n")).join("\n")); undefined`))
	p.Wait("window.found !== undefined")
	if found := p.Text("window.found"); found != "" {
		p.t.Errorf("%s:\n%s", p.Text("location.href"), found)
	}
}
