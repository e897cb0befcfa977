package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"settee/internal/servers"
	"settee/internal/testkit"
)

// limit is how long a page may take to show what a test waits for. An idle machine takes a second.
const limit = 2 * time.Minute

// browser returns the browser of this process.
var browser = sync.OnceValues(func() (*servers.Chromium, error) {
	dir, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, err
	}
	// Not a test's context, because the browser outlives the test.
	started, err := servers.StartChromium(context.Background(), dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return started, nil
})

// Page is a tab of the browser.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu      sync.Mutex
	console []string
}

// Open returns a new tab, which is closed at the end of the test.
func Open(t testing.TB) *Page {
	t.Helper()
	testkit.SkipShort(t)
	started, err := browser()
	if err != nil {
		servers.LeaveOut(t, servers.NameChromium, err)
	}
	p := &Page{t: t}
	connected, disconnect := remote.NewAllocator(context.Background(), started.DevTools, remote.NoModifyURL)
	t.Cleanup(disconnect)
	var closeTab context.CancelFunc
	p.ctx, closeTab = chromedp.NewContext(connected, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.hear))
	t.Cleanup(closeTab)
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(p.ctx, limit)
			defer cancel()
			text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
			t.Logf("%s\nThe console:\n%s", text, strings.Join(p.Console(), "\n"))
		}
	})
	if err := chromedp.Do(p.ctx); err != nil { // opens the tab, which lasts as long as this context
		t.Fatal(err)
	}
	return p
}

// hear notes errors of the page.
func (p *Page) hear(event any) {
	var said string
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		said = event.ExceptionDetails.Text
		if thrown := event.ExceptionDetails.Exception; thrown != nil {
			said += " " + thrown.Description
		}
	case *log.EventEntryAdded: // policies that were violated are among these, and requests that failed
		if event.Entry.Level != log.EntryLevelError {
			return
		}
		said = event.Entry.Text + " " + event.Entry.URL
	case *runtime.EventConsoleAPICalled:
		if event.Type != runtime.ConsoleAPICalledTypeError {
			return
		}
		for _, arg := range event.Args {
			said += string(arg.Value) + arg.Description + " "
		}
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.console = append(p.console, said)
}

// Console returns the errors in the page's console so far: exceptions, requests that failed or were answered with an
// error, and violations of the content security policy.
func (p *Page) Console() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.console...)
}

// do makes a step, and fails the test if it fails.
func (p *Page) do(what string, step chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, what, step)
}

// run returns the value of a step, and fails the test if the step fails.
func run[T any](p *Page, what string, step chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	value, err := chromedp.Run(ctx, step)
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return value
}

// Go opens a URL, also one that differs from the URL of the page in its fragment alone.
func (p *Page) Go(url string) {
	p.t.Helper()
	p.do("going to "+url, chromedp.Navigate(url))
}

// Wait waits until a JavaScript expression is true.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	// Not by animation frames: a busy machine may draw none. Not more often: each look makes the browser lay out the page.
	p.do("waiting for "+expression, chromedp.Poll[chromedp.Void]("("+expression+")",
		chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(0)))
}

// WaitText waits until an element that matches a CSS selector contains a text.
func (p *Page) WaitText(selector, text string) {
	p.t.Helper()
	p.Wait(fmt.Sprintf("[...document.querySelectorAll(%s)].some(e => e.innerText.includes(%s))", strconv.Quote(selector), strconv.Quote(text)))
}

// Click clicks on the first element that matches a CSS selector.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.ClickOn(fmt.Sprintf("document.querySelector(%s)", strconv.Quote(selector)))
}

// ClickOn clicks on the element that is the value of a JavaScript expression, when there is one. Whatever else the page
// shows at that place does not matter, except a dialog: with one, it clicks only on what is in the dialog.
func (p *Page) ClickOn(expression string) {
	p.t.Helper()
	p.Wait("(e => e && !e.disabled && ([...document.querySelectorAll('dialog')].at(-1) ?? document).contains(e) && (e.click(), true))(" + expression + ")")
}

// Type replaces the text of the first field that matches a CSS selector with what it types.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	field := chromedp.CSS(selector)
	p.do("typing into "+selector, chromedp.Steps(
		chromedp.WaitVisible(field), chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%s).select()", strconv.Quote(selector))),
		chromedp.SendKeys(field, text)))
}
