package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/browsertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pages serves a page that shows the cookies of requests, repeats a field when its button is clicked on, and runs a
// script that its policy forbids.
func pages(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/script.js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `document.querySelector("button").onclick = () => {
				document.querySelector("p").innerText = "You wrote " + document.querySelector("input").value
			}`)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "yes"})
		fmt.Fprintf(w, `<!doctype html><i>%d cookies</i><input value="old"><button disabled>Go</button><p></p>
			<script src="script.js"></script>`, len(r.Cookies()))
		if r.URL.Path == "/forbidden" {
			fmt.Fprint(w, `<script>document.body.innerHTML = ""</script>`)
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

func TestBrowserPage(t *testing.T) {
	t.Parallel()
	url, page := pages(t), browsertest.Open(t)
	page.Go(url)
	page.WaitText("i", "0 cookies")
	page.Type("input", "new")
	page.Wait(`document.querySelector("button").disabled = false, true`)
	page.Click("button")
	page.WaitText("p", "You wrote new")
	page.Go(url + "/again")
	page.WaitText("i", "1 cookies")
}

// Each page has cookies of its own.
func TestBrowserPagesAreApart(t *testing.T) {
	t.Parallel()
	url := pages(t)
	for range 2 {
		page := browsertest.Open(t)
		page.Go(url)
		page.WaitText("i", "0 cookies")
	}
}

func TestBrowserConsole(t *testing.T) {
	t.Parallel()
	url, page := pages(t), browsertest.Open(t)
	page.Go(url + "/forbidden")
	page.WaitText("i", "0 cookies")
	require.Eventually(t, func() bool { return len(page.Console()) > 0 }, time.Minute, 10*time.Millisecond)
	assert.Contains(t, page.Console()[0], "Content Security Policy")
}
