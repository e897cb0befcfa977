package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/browsertest"
	"settee/pkg/couch/couchtest"
)

// dashboard is the page of a node, opened by a user.
type dashboard struct {
	*browsertest.Page
	home string
}

// openDashboard opens the page of a node, and logs in.
func openDashboard(t *testing.T, node *process, name, password string) dashboard {
	t.Helper()
	return openDashboardIn(browsertest.Open(t), node, name, password)
}

// openDashboardIn is openDashboard with a page of a browser.
func openDashboardIn(page *browsertest.Page, node *process, name, password string) dashboard {
	d := openDashboardAt(page, node)
	d.logIn(name, password)
	return d
}

// openDashboardAt opens the page of a node, which asks for the password.
func openDashboardAt(page *browsertest.Page, node *process) dashboard {
	d := dashboard{page, withoutAdmin(node.url) + "_utils/"}
	d.Go(d.home)
	return d
}

func (d dashboard) logIn(name, password string) {
	d.fill("User", name)
	d.fill("Password", password)
	d.press("Log in")
	d.WaitText(".who", name)
}

// show goes to a page.
func (d dashboard) show(path string) { d.Go(d.home + "#/" + path) }

// labelled is the field with a label, as JavaScript.
func labelled(label string) string {
	return fmt.Sprintf("(l => l && document.getElementById(l.htmlFor))([...document.querySelectorAll('label')].find(l => l.textContent === %s))", strconv.Quote(label))
}

// fill types a text into the field with a label.
func (d dashboard) fill(label, text string) {
	d.Wait("(f => f && (f.dataset.field = " + strconv.Quote(label) + ", true))(" + labelled(label) + ")")
	d.Type("[data-field="+strconv.Quote(label)+"]", text)
}

// choose chooses the option of the field with a label.
func (d dashboard) choose(label, value string) {
	d.Wait("(f => f && (f.value = " + strconv.Quote(value) + ", f.dispatchEvent(new Event('change', {bubbles: true})), true))(" + labelled(label) + ")")
}

// press clicks on the last button or link with a name: the dialog's, if a dialog is open.
func (d dashboard) press(name string) {
	d.ClickOn("[...document.querySelectorAll('button, a')].findLast(e => e.innerText === " + strconv.Quote(name) + ")")
}

// tab clicks on the tab with a name, which has a number behind it.
func (d dashboard) tab(name string) {
	d.ClickOn("[...document.querySelectorAll('.tabs a')].find(e => e.innerText.replace(/ [0-9,]+$/, '') === " + strconv.Quote(name) + ")")
	d.Wait("document.querySelector('.tabs [aria-current]').innerText.startsWith(" + strconv.Quote(name) + ")")
}

// lose makes the page lose the answers to the next n requests with a method whose path contains a text. The node answers them.
func (d dashboard) lose(n int, method, path string) {
	d.Wait(fmt.Sprintf(`(node => {
		[window.lost, window.toLose] = [0, %d]
		window.fetch = async (url, init) => {
			const lost = (init?.method ?? "GET") === %q && String(url).includes(%q) && window.toLose-- > 0
			const answer = await node(url, init)
			if (!lost) return answer
			window.lost++
			throw new TypeError("the connection was cut")
		}
		return true
	})(window.fetch)`, n, method, path))
}

// countWaits counts in window.mostWaits how many requests have waited for something new at the same time.
func (d dashboard) countWaits() {
	d.Wait(`(node => {
		window.mostWaits = 0
		let waits = 0
		window.fetch = (url, init) => {
			if (!init?.headers?.Prefer || !init.headers["If-None-Match"]) return node(url, init)
			window.mostWaits = Math.max(window.mostWaits, ++waits)
			return node(url, init).finally(() => waits--)
		}
		return true
	})(window.fetch)`)
}

// broke fails the test if a script of the page threw something, or the page broke a rule of its policy. Requests that
// are answered with an error, as those of an invalid document, are no fault.
func (d dashboard) broke(t *testing.T) {
	t.Helper()
	for _, line := range d.Console() {
		assert.True(t, strings.HasPrefix(line, "Failed to load resource: the server responded with a status of 4"), line)
	}
}

func document(t *testing.T, fields map[string]any) string {
	t.Helper()
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(text)
}

// A replication is made with the form, watched, edited, and cancelled.
func TestDashboardReplication(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	source, target := peer.DB(t, "dashboard-source"), peer.DB(t, "dashboard-target")
	for i := range 3 {
		ask(t, http.StatusCreated, http.MethodPut, source+"/"+strconv.Itoa(i), "{}")
	}
	node := serveNode(t, aStore(t))
	d := openDashboard(t, node, adminName, adminPassword)
	d.press("New replication")
	d.WaitText("[role=status]", "The URL of the source and the URL of the target are missing.")
	d.fill("URL of the source", source)
	d.WaitText("[role=status]", "The URL of the target is missing.")
	d.Wait("!document.querySelector('form.replication .trouble')")
	d.fill("URL of the target", target)
	d.WaitText("[role=status]", "The document is valid.")
	d.choose("Runs", "schedule")
	d.fill("Schedule", "61 * * * *")
	d.WaitText("[role=status]", "`schedule`")
	d.choose("Runs", "continuous")
	d.WaitText("[role=status]", "The document is valid.")
	d.fill("Document id", "a / b?c#d")
	d.press("Create")
	d.WaitText(".state", "running")
	d.WaitText(".progress", "3 written")
	ask(t, http.StatusCreated, http.MethodPut, source+"/3", "{}")
	d.WaitText(".progress", "4 written")
	d.WaitText(".now", "has copied everything, and waits for changes")
	d.WaitText("pre", `"continuous": true`)
	password := passwordOf(t, source)
	assert.NotContains(t, d.Text("document.documentElement.outerHTML"), password)

	d.press("settee")
	d.WaitText(".counts", "running")
	d.ClickOn("document.querySelector('.counts .running')")
	d.WaitText("table.jobs", "a / b?c#d")
	d.WaitText(".total", "1 job")
	d.fill("Source, target or id", "nothing-has-this")
	d.WaitText("main", "No job matches these filters.")
	d.fill("Source, target or id", "DASHBOARD-TARGET")
	d.WaitText("table.jobs", "a / b?c#d")
	d.Wait("location.hash.includes('q=DASHBOARD-TARGET')") // the filters are in the address
	d.fill("Database", "_repl")
	d.WaitText("main", "There is no replicator database _repl.")
	d.Wait("!document.querySelector('.trouble')")
	d.fill("Database", "_replicator")

	d.press("_replicator / a / b?c#d")
	d.press("Edit")
	d.WaitText("h1", "Edit a / b?c#d")
	d.choose("Runs", "every")
	d.press("Save")
	d.WaitText("dl", "Next run")
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_replicator/"+url.PathEscape("a / b?c#d"), "")), &doc))
	assert.Equal(t, "15m", doc["every"])
	assert.Equal(t, source, doc["source"], "the password, which the form did not show, has stayed")

	d.press("Delete")
	d.WaitText("dialog h2", "Delete the replication")
	d.WaitText("dialog", "is deleted from _replicator")
	d.WaitText("dialog", "To stop it for a while, pause it")
	d.Wait("document.activeElement.innerText === 'Not now'")
	d.press("Delete the replication")
	d.WaitText("main", "There are no replications yet.")
	node.ask(http.StatusNotFound, http.MethodGet, "_replicator/"+url.PathEscape("a / b?c#d"), "")
	d.broke(t)
}

// passwordOf returns the password in a URL.
func passwordOf(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	password, _ := u.User.Password()
	require.NotEmpty(t, password)
	return password
}

// The form keeps secrets that it does not show, and says what keeps a document from being written.
func TestDashboardForm(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/one", document(t, map[string]any{
		"source": "http://ann:s3@cret@127.0.0.1:1/films", "target": node.url + "b", "continuous": true,
	}))
	read := func() map[string]any {
		var doc map[string]any
		require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_replicator/one", "")), &doc))
		return doc
	}
	target := read()["target"]
	d := openDashboard(t, node, adminName, adminPassword)
	const editing = "new?database=_replicator&document=one"
	d.show(editing)
	d.WaitText("[role=status]", "The document is valid.")
	require.NotContains(t, d.Text("document.querySelector('textarea[rows=\"16\"]').value"), "cret", "a password goes up to the last @")

	d.Wait(labelled("URL of the source") + ".value === 'http://127.0.0.1:1/films'")
	d.Wait(labelled("User of the source") + ".value === 'ann'")
	d.fill("User of the source", "eve")
	d.WaitText("[role=status]", "The document is valid.")
	d.fill("Password of the source", "new@secret")
	d.press("Save")
	d.WaitText("h1", "_replicator / one")
	source := map[string]any{
		"url": "http://127.0.0.1:1/films", "auth": map[string]any{"basic": map[string]any{"username": "eve", "password": "new@secret"}},
	}
	require.Equal(t, source, read()["source"])
	require.Equal(t, target, read()["target"], "the login of the other endpoint stays in its URL")

	d.show(editing)
	d.WaitText("[role=status]", "The document is valid.")
	d.fill("JSON", `{"source": {"url": "http://127.0.0.1:1/films", "headers": {"Cookie": "*****"}}, "target": "http://127.0.0.1:1/b"}`)
	d.WaitText("[role=status]", "write the secret of source.headers.Cookie.")
	d.Wait("!document.querySelector('[inert]')")
	d.fill("JSON", `{"source": `)
	d.WaitText("[role=status]", "This is not JSON.")
	d.Wait(labelled("URL of the target") + ".closest('[inert]')") // it would take the place of the text
	d.fill("JSON", `{"source": {"url": "http://127.0.0.1:1/films", "headers": {"Cookie": "*****"}}, "target": "http://127.0.0.1:1/b"}`)
	d.Wait("[...document.querySelectorAll('button')].find(b => b.innerText === 'Save').disabled")

	d.show("new")
	d.WaitText("h1", "New replication")
	d.Wait("document.querySelector('textarea[rows=\"16\"]').value === JSON.stringify({source: '', target: ''}, null, 2)")
	d.fill("URL of the source", node.url+"a")
	d.fill("URL of the target", node.url+"b")
	d.fill("Document id", "one")
	d.WaitText("[role=status]", "The document is valid.")
	d.lose(1000, http.MethodPost, "/_scheduler/check")
	d.fill("Only these documents", "film")
	d.WaitText("[role=status]", "The document could not be checked: This node does not answer.")
	d.Wait("![...document.querySelectorAll('button')].find(b => b.innerText === 'Create').disabled")
	d.Wait("window.toLose = 0, true")
	d.WaitText("[role=status]", "The document is valid.") // it was checked again without an edit
	d.Wait("(f => (f.value = '', f.dispatchEvent(new Event('input', {bubbles: true})), true))(" + labelled("Only these documents") + ")")
	d.fill("Only documents that match", "{")
	d.Wait("document.querySelector('form.replication :invalid')")
	d.fill("Only documents that match", `{"year": 1979}`)
	d.Wait("!document.querySelector('form.replication :invalid')")
	d.WaitText("[role=status]", "The document is valid.")
	d.press("Create")
	d.WaitText("[role=alert]", "there is a document with this id")
	d.press("edit that one")
	d.WaitText("h1", "Edit one")
	d.WaitText("[role=status]", "The document is valid.")

	doc := read()
	doc["other"] = "written meanwhile"
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/one", document(t, doc))
	d.Wait("document.querySelector('details').open = true")
	d.fill("Batch size", "7")
	d.press("Save")
	d.WaitText("[role=alert]", "changed since")
	d.press("Discard my changes and read it again")
	d.Wait("document.querySelector('textarea[rows=\"16\"]')?.value.includes('written meanwhile')")
	d.Wait("document.querySelector('details').open = true")
	d.fill("Batch size", "8")
	d.press("Save")
	d.WaitText("h1", "_replicator / one")
	doc = read()
	assert.Equal(t, source, doc["source"])
	assert.EqualValues(t, 8, doc["worker_batch_size"])
	assert.Equal(t, "written meanwhile", doc["other"])

	d.show("new")
	d.fill("URL of the source", node.url+"a")
	d.fill("URL of the target", node.url+"b")
	d.WaitText("[role=status]", "The document is valid.")
	d.lose(1, http.MethodPut, "/_replicator/")
	d.press("Create")
	d.WaitText("[role=alert]", "This node does not answer.")
	d.press("Create") // of the same document
	d.Wait("/^_replicator . [0-9a-f]{32}$/.test(document.querySelector('h1').innerText)")
	var all struct{ Rows []any }
	require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_replicator/_all_docs", "")), &all))
	assert.Len(t, all.Rows, 2)
	d.broke(t)
}

// The page of a job that has ended has its runs and what its target refused, and runs it again.
func TestDashboardEnded(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	source, target := node.hosted("source"), node.hosted("target")
	node.ask(http.StatusCreated, http.MethodPut, "target/_design/rules", document(t, map[string]any{
		"validate_doc_update": "function(doc) { if (doc.bad) throw({forbidden: 'not ' + doc._id}); }",
	}))
	node.ask(http.StatusCreated, http.MethodPut, "source/good", "{}")
	node.ask(http.StatusCreated, http.MethodPut, "source/evil", `{"bad": true}`)
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/one", document(t, map[string]any{"source": source, "target": target}))
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("documents/_replicator/one")
	d.WaitText(".state", "completed")
	d.WaitText("main", "1 run copied everything")
	d.WaitText("details.group", "403: not …")
	d.WaitText(".rows", "evil")
	d.WaitText(".rows time", "ago")
	d.Wait("(items => items.length === 2 && items[1].innerText.startsWith('added'))(document.querySelectorAll('.timeline > li'))")
	d.WaitText("main", "Has everything up to")
	require.NotContains(t, d.Text("document.body.innerText"), "NaN")
	node.ask(http.StatusCreated, http.MethodPut, "source/late", "{}")
	d.press("Run again")
	d.Wait("[...document.querySelectorAll('section')].find(s => s.querySelector('h2').innerText === 'Runs and history').querySelectorAll('tbody tr').length === 2 || document.querySelector('.progress')?.innerText.includes('2 written')")
	d.WaitText(".state", "completed")
	node.ask(http.StatusOK, http.MethodGet, "target/late", "")

	// The number of jobs is announced when others are chosen, and not when it changes.
	const announced = "document.querySelector('p[role=status]').textContent"
	d.show("jobs?condition=running")
	d.WaitText(".total", "0 jobs")
	require.Empty(t, d.Text(announced))
	d.tab("completed")
	d.WaitText(".total", "1 job")
	d.Wait(announced + " === '1 job'")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/two", document(t, map[string]any{"source": source, "target": target, "doc_ids": []string{"x"}}))
	d.WaitText(".total", "2 jobs")
	require.Equal(t, "1 job", d.Text(announced))

	node.ask(http.StatusOK, http.MethodPost, "_replicate", document(t, map[string]any{"source": source, "target": target, "doc_ids": []string{"y"}}))
	d.show("jobs?user=" + adminName)
	d.ClickOn("document.querySelector('[aria-label=\"Select _replicate of " + adminName + "\"]')")
	d.press("Delete")
	d.press("Delete 1 replication")
	d.WaitText(".notices", "_replicate of "+adminName+": it has ended, and has no document to delete")

	d.show("jobs?user=")
	d.WaitText("main", "Jobs that the anonymous user has posted to _replicate.")
	d.press("Show all jobs")
	d.WaitText("table.jobs", "_replicator / one")
	d.broke(t)
}

// What endpoints and users call things is shown as it is, and is not part of the page.
func TestDashboardHostileNames(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	const hostile = `<img src=x onerror="document.title='broken'">`
	path := "_replicator/" + url.PathEscape(hostile)
	source := node.url + url.PathEscape(strings.ToLower(`a"><img`))
	node.ask(http.StatusCreated, http.MethodPut, path, document(t, map[string]any{
		"source": source, "target": node.url + "b", "continuous": true, "doc_ids": []string{hostile}, "other": hostile,
	}))
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("jobs?q=%3Cimg")
	d.WaitText("table.jobs", hostile)
	d.press("_replicator / " + hostile)
	d.WaitText("h1", hostile)
	d.WaitText("pre", `"other": "<img src=x onerror=\"document.title='broken'\">"`)
	d.show("jobs?q=" + url.QueryEscape(hostile))
	d.WaitText("table.jobs", hostile)
	d.show("documents/_replicator/" + url.PathEscape(hostile))
	d.WaitText("h1", hostile)
	assert.Equal(t, "0", d.Text("String(document.querySelectorAll('img').length)"))
	assert.NotContains(t, d.Text("document.title"), "broken - ")

	// A browser resolves these names if they are part of a path.
	for _, id := range []string{".", ".."} {
		node.ask(http.StatusCreated, http.MethodPost, "_replicator", document(t, map[string]any{
			"_id": id, "source": source, "target": node.url + "c" + strconv.Itoa(len(id)), "continuous": true,
		}))
		d.show("new?database=_replicator&document=" + id)
		d.WaitText(".trouble", "A browser cannot address what is named "+id)
		d.show("documents/_replicator/" + id)
		d.WaitText(".trouble", "A browser cannot address what is named "+id)
		d.show("jobs")
		d.press("_replicator / " + id)
		d.press("Delete")
		d.press("Delete the replication")
		d.WaitText(".notices", "_replicator / "+id+": deleted")
		require.NotContains(t, node.ask(http.StatusOK, http.MethodGet, "_replicator/_all_docs", ""), strconv.Quote(id))
	}
	node.ask(http.StatusOK, http.MethodGet, path, "")
	d.broke(t)
}

// A page whose session has ended asks for the password, and goes on where it was.
func TestDashboardSessionEnds(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("nodes")
	d.WaitText("table", "replication")
	d.ForgetCookies()
	d.WaitText("h1", "Log in")
	d.fill("User", adminName)
	d.fill("Password", "wrong")
	d.press("Log in")
	d.WaitText(".trouble", "Name or password is incorrect")
	d.logIn(adminName, adminPassword)
	d.WaitText("h1", "Nodes")

	d.press("New replication")
	d.WaitText("[role=status]", "are missing")
	d.fill("Document id", "kept")
	d.ForgetCookies()
	// At once: the next check of the document hides the field.
	d.Wait("(f => (f.value = 'http://127.0.0.1:1/a', f.dispatchEvent(new Event('input', {bubbles: true})), true))(" + labelled("URL of the source") + ")")
	d.WaitText("h1", "Log in")
	d.logIn(adminName, adminPassword)
	d.WaitText("h1", "New replication")
	d.Wait(labelled("Document id") + ".value === 'kept'")
	d.Wait(labelled("URL of the source") + ".value === 'http://127.0.0.1:1/a'")
	d.lose(1, http.MethodDelete, "/_session")
	d.press("Log out")
	d.WaitText(".notices", "Not logged out: This node does not answer.")
	d.press("Log out")
	d.WaitText("h1", "Log in")
}

// The form to log in waits for the user's name, and the key / goes to the search of a page, but stays a character in a
// field.
func TestDashboardKeyboard(t *testing.T) {
	t.Parallel()
	d := openDashboardAt(browsertest.Open(t), serveNode(t, "mem:"))
	d.WaitText("h1", "Log in")
	d.Wait("document.activeElement === " + labelled("User"))
	d.Wait("document.title === 'Log in - ' + location.host + ' - settee'")
	d.Size(1600, 900, false)
	d.Wait("(f => Math.abs(f.left + f.right - innerWidth) < 40)(document.querySelector('form').getBoundingClientRect())")
	d.logIn(adminName, adminPassword)

	const slash = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true, cancelable: true}))"
	for path, label := range map[string]string{"jobs": "Source, target or id", "configuration": "Find a setting"} {
		d.show(path)
		d.Wait(labelled(label))
		d.Wait("!" + slash) // the page takes the key
		d.Wait("document.activeElement === " + labelled(label))
		d.Wait(slash) // the field takes it
	}
	d.broke(t)
}

// A page says that its node does not answer, and goes on when the node is back.
func TestDashboardNodeReturns(t *testing.T) {
	t.Parallel()
	store := "pebble:" + filepath.Join(t.TempDir(), "data")
	node := serveNode(t, store)
	at, err := url.Parse(node.url)
	require.NoError(t, err)
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("jobs")
	d.WaitText(".total", "0 jobs")
	require.NoError(t, node.cmd.Process.Kill())
	<-node.read
	d.WaitText(".trouble", "This node does not answer.")
	again := serveNode(t, store, "chttpd/port="+at.Port())
	again.ask(http.StatusCreated, http.MethodPut, "_replicator/one", document(t, map[string]any{
		"source": node.url + "a", "target": node.url + "b", "continuous": true,
	}))
	d.WaitText("table.jobs", "_replicator / one")
	d.Wait("!document.querySelector('.trouble[role=alert]')")
}

// A page says that its node hangs, which takes connections and answers nothing, and goes on when it does.
func TestDashboardOfAFrozenNode(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("jobs")
	d.WaitText(".total", "0 jobs")
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGSTOP))
	defer func() { _ = node.cmd.Process.Signal(syscall.SIGCONT) }()
	d.WaitText(".trouble", "This node does not answer.")
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGCONT))
	d.Wait("!document.querySelector('.trouble[role=alert]')")
}

// Databases are made, paused and deleted, and settings changed and taken back.
func TestDashboardDatabasesAndSettings(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("databases")
	d.Wait("([...document.querySelectorAll('button')].find(b => b.innerText === 'New database')?.focus(), document.activeElement.innerText === 'New database')")
	d.press("New database")
	d.press("Not now")
	d.Wait("!document.querySelector('dialog') && document.activeElement.innerText === 'New database'")
	d.press("New database")
	d.fill("Name", "team\r")
	d.WaitText("table", "team/_replicator")
	node.ask(http.StatusOK, http.MethodGet, "team%2F_replicator", "")
	row := "[...document.querySelectorAll('tr')].find(r => r.innerText.includes('team/_replicator'))"
	d.ClickOn("[..." + row + ".querySelectorAll('button')].find(b => b.innerText === 'Delete')")
	d.fill("Type its name", "team/_replicator")
	d.press("Delete the database")
	d.Wait("!(" + row + ")")
	node.ask(http.StatusNotFound, http.MethodGet, "team%2F_replicator", "")

	d.show("configuration?q=chttpd%5D+port")
	d.WaitText("table", "read when a node starts")
	d.Wait("!document.querySelector('[aria-label=\"Change port\"]')")
	d.press("Set")
	d.fill("Section", "chttpd")
	d.fill("Setting", "port")
	d.WaitText("dialog", "It is read when a node starts")
	d.Wait("[...document.querySelectorAll('dialog button')].find(b => b.innerText === 'Set').disabled")
	d.press("Not now")
	d.show("configuration?q=max_jobs")
	d.ClickOn("document.querySelector('[aria-label=\"Change max_jobs\"]')")
	d.fill("Value", "0x")
	d.press("Set")
	d.WaitText("dialog", "max_jobs")
	d.fill("Value", "7")
	d.press("Set")
	from := func(origin string) { // other settings mention this one
		d.Wait("document.querySelector('[aria-label=\"Change max_jobs\"]')?.closest('tr').querySelector('.whole').innerText === '" + origin + "'")
	}
	from("store")
	d.tab("changed")
	d.WaitText("table", "max_jobs")
	d.ClickOn("document.querySelector('[aria-label=\"Change max_jobs\"]')")
	d.fill("Value", "8")
	node.ask(http.StatusOK, http.MethodPut, "_node/_local/_config/replicator/max_jobs", `"9"`)
	value := func(text string) {
		d.Wait("document.querySelector('[aria-label=\"Change max_jobs\"]')?.closest('tr').querySelector('code').innerText.trim() === '" + text + "'")
	}
	value("9") // the page is up to date
	node.ask(http.StatusOK, http.MethodDelete, "_node/_local/_config/replicator/max_jobs", "")
	d.Wait("!document.querySelector('[aria-label=\"Change max_jobs\"]')")
	d.Wait(labelled("Value") + ".value === '8'") // and what was typed stays
	d.press("Set")
	value("8")
	node.ask(http.StatusOK, http.MethodPut, "_node/_local/_config/replicator/max_jobs", `"7"`)
	d.Wait("!document.querySelector('[aria-label=\"Change max_churn\"]')")
	d.tab("replicator")
	d.WaitText("table", "max_churn")
	assert.Equal(t, "\"7\"\n", node.ask(http.StatusOK, http.MethodGet, "_node/_local/_config/replicator/max_jobs", ""))
	d.press("Take back")
	d.WaitText("dialog", "max_jobs")
	d.press("Take back")
	from("default")
	assert.Equal(t, "\"500\"\n", node.ask(http.StatusOK, http.MethodGet, "_node/_local/_config/replicator/max_jobs", ""))
	d.WaitText("main", "Latest changes by users")
	d.WaitText("main", "took back")
	d.show("configuration?q=cluster_name")
	d.ClickOn("document.querySelector('[aria-label=\"Change cluster_name\"]')")
	d.fill("Value", "Köln")
	d.press("Set")
	d.WaitText(".host", "Köln")
	d.Wait("document.title === 'Configuration - Köln - settee'")
	d.Wait("![...document.querySelectorAll('.notice')].some(e => e.innerText.includes('no effect'))")
	d.press("Set")
	d.fill("Section", "couchdb")
	d.fill("Setting", "database_dir")
	d.fill("Value", "x")
	d.press("Set")
	d.WaitText(".notice.bad", "[couchdb] database_dir is set on all nodes, and has no effect")
	d.Accessible()
}

// All replicator databases are listed, however many other databases there are.
func TestDashboardOfManyDatabases(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	for i := range 1_100 {
		node.ask(http.StatusCreated, http.MethodPut, fmt.Sprintf("db%04d", i), "")
	}
	node.ask(http.StatusCreated, http.MethodPut, "zzz%2F_replicator", "")
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("databases")
	d.WaitText("table", "zzz/_replicator")
}

// pictures is where TestDashboardPages writes what it sees.
var pictures = flag.String("pictures", "", "a directory for pictures of the dashboard")

// busyDatabases are the sources of a busyNode from which jobs copy.
var busyDatabases = []string{"articles", "customers", "films", "invoices", "orders", "sessions"}

// keepBusy writes documents into the sources of a busyNode until the test ends.
func keepBusy(t *testing.T, node *process) {
	var writing sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		writing.Wait()
	})
	writing.Go(func() {
		docs := make([]map[string]any, 0, 40)
		for i := 0; ; i++ {
			docs = docs[:0]
			for range 10 + i%30 {
				docs = append(docs, map[string]any{"title": strings.Repeat("a long title ", 40)})
			}
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				node.ask(http.StatusCreated, http.MethodPost, busyDatabases[i%len(busyDatabases)]+"/_bulk_docs", document(t, map[string]any{"docs": docs}))
			}
		}
	})
}

// busyNode returns a node at work: jobs that copy, are parked, wait for a time or for a slot, crash, or are stuck.
func busyNode(t *testing.T) *process {
	t.Helper()
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"error":"internal_server_error","reason":"disk is full"}`))
	}))
	t.Cleanup(full.Close)
	hangs := couchtest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	node := serveNode(t, "mem:", "replicator/stuck_after_sec=1", "replicator/max_jobs=12")
	docs := make([]map[string]any, 50)
	for i := range docs {
		docs[i] = map[string]any{"_id": strconv.Itoa(i), "title": "One of fifty"}
	}
	replicate := func(path string, fields map[string]any) {
		t.Helper()
		node.ask(http.StatusCreated, http.MethodPut, path, document(t, fields))
	}
	for _, name := range busyDatabases {
		source, target := node.hosted(name), node.hosted(name+"-copy")
		node.ask(http.StatusCreated, http.MethodPost, name+"/_bulk_docs", document(t, map[string]any{"docs": docs}))
		replicate("_replicator/"+name+"-to-copies", map[string]any{"source": source, "target": target, "continuous": true})
	}
	films, copies := node.url+"films", node.url+"films-copy"
	node.hosted("strict")
	replicate("strict/_design/rules", map[string]any{
		"validate_doc_update": "function(doc) { if (doc._id > '3') throw({forbidden: 'the field author is missing in ' + doc._id}); }",
	})
	replicate("_replicator/crashes", map[string]any{"source": node.url + "missing", "target": copies, "continuous": true})
	replicate("_replicator/every-night", map[string]any{"source": films, "target": copies, "schedule": "0 3 * * *"})
	replicate("_replicator/to-strict", map[string]any{"source": films, "target": node.url + "strict", "continuous": true})
	wrong := strings.Replace(withoutAdmin(node.url), "http://", "http://ann:wrong@", 1)
	node.ask(http.StatusCreated, http.MethodPut, "team%2F_replicator", "")
	for i := range 3 {
		id := strconv.Itoa(i + 1)
		replicate("_replicator/archive-"+id, map[string]any{
			"source": films, "target": full.URL + "/archive-" + id, "continuous": true, "retries_per_request": 0,
		})
		replicate("team%2F_replicator/region-"+id, map[string]any{"source": films, "target": node.url + "region-" + id, "continuous": true})
		replicate("team%2F_replicator/shop-"+id, map[string]any{"source": wrong + "orders", "target": copies, "doc_ids": []string{id}, "continuous": true})
	}
	for i := range 7 {
		id := fmt.Sprintf("branch-%d", i+1)
		replicate("team%2F_replicator/"+id, map[string]any{"source": hangs.URL + "/" + id, "target": copies, "continuous": true})
	}
	return node
}

// Every page is accessible, narrow and wide, in light and dark, and breaks no rule of its own policy.
func TestDashboardPages(t *testing.T) {
	t.Parallel()
	node := busyNode(t)
	d := openDashboard(t, node, adminName, adminPassword)
	if *pictures != "" {
		keepBusy(t, node)
		d.show("")
		d.WaitText(".problems", "7 jobs make no progress")
		d.WaitText(".verdict", "All 12 slots are used")
		d.Wait("/written\\s+[1-9]/.test(document.querySelector('figcaption').innerText)")
	}
	pages := []struct{ name, path, selector, text string }{
		{"overview", "", ".problems", "answers with a server error"},
		{"jobs", "jobs", "table.jobs", " written"},
		{"job", "documents/_replicator/films-to-copies", ".progress", " written"},
		{"refused", "documents/_replicator/to-strict", "details.group", "the field author is missing in …"},
		{"crashing", "documents/_replicator/crashes", ".trouble", "the database does not exist"},
		{"new", "new?database=_replicator&document=every-night", ".good", "The document is valid."},
		{"databases", "databases", "table", "_replicator"},
		{"nodes", "nodes", "table", "api_frontend"},
		{"configuration", "configuration?q=certificate", "table", "default"},
		{"nothing", "nothing", "h1", "There is no such page"},
	}
	for _, width := range []int64{360, 1600} {
		for _, dark := range []bool{false, true} {
			d.Size(width, 900, dark)
			for _, page := range pages {
				d.show(page.path)
				d.WaitText(page.selector, page.text)
				d.Accessible()
				assert.Equal(t, "true", d.Text("String(document.documentElement.scrollWidth <= innerWidth)"), "%s at %d", page.name, width)
				if *pictures != "" && !dark && page.name != "nothing" {
					name := fmt.Sprintf("dashboard-%s-%d.png", page.name, width)
					require.NoError(t, os.WriteFile(filepath.Join(*pictures, name), d.Screenshot(), 0o644))
				}
			}
		}
	}
	d.broke(t)
}

// A crashing job does not wait for its time, and a paused database has no running jobs.
func TestDashboardRunsAndPauses(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	node.hosted("target")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/one", document(t, map[string]any{
		"source": node.url + "source", "target": node.url + "target", "continuous": true,
	}))
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("")
	d.WaitText(".rows", "the database does not exist")
	d.show("documents/_replicator/one")
	d.WaitText(".state", "crashing")
	d.WaitText("dl", "Next run")
	d.show("jobs")
	d.WaitText("table.jobs", "goes on in")
	d.show("documents/_replicator/one")
	d.WaitText(".state", "crashing")
	node.hosted("source")
	d.press("Run now")
	d.WaitText(".notices", "_replicator / one: will run as soon as there is a slot")
	d.WaitText("main", "ran it at once")
	d.WaitText(".now", "running")
	d.show("databases")
	d.Wait("(f => f && (f.value = '250', f.dispatchEvent(new Event('input', {bubbles: true})), true))(document.querySelector('[aria-label=\"Shares of _replicator\"]'))")
	d.press("Set")
	d.Wait("![...document.querySelectorAll('button')].some(b => b.innerText === 'Set')")
	d.Wait("document.querySelector('[aria-label=\"Shares of _replicator\"]').value === '250'")
	d.press("Pause")
	d.WaitText("table", "1 paused")
	d.show("jobs")
	d.WaitText("table.jobs", "its database has no shares for")
	d.press("_replicator / one")
	d.WaitText(".now", "its database has no shares for")
	d.press("Run now")
	d.WaitText("dialog", "The database of this job is paused. The job runs as soon as")
	d.press("Not now")
	d.Accessible()
	d.show("databases")
	d.WaitText("table", "paused for")
	d.press("Resume")
	d.WaitText("dialog", "It had 250 before it was paused.")
	d.Accessible()
	d.press("Resume the database")
	d.WaitText(".notices", "_replicator is resumed with 250 shares")
	d.WaitText("table", "1 running")
	d.Wait("!document.querySelector('dialog')")
	d.Wait("document.querySelector('[aria-label=\"Shares of _replicator\"]').value === '250'")
	d.broke(t)
}

// Jobs of a list are selected, run and deleted. What happens is said in a message.
func TestDashboardSelection(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	source, target := node.hosted("source"), node.url+"target"
	create := func(id string) {
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/"+id, document(t, map[string]any{
			"source": source, "target": target, "continuous": true, "doc_ids": []string{id},
		}))
	}
	remove := func(id string) {
		node.ask(http.StatusOK, http.MethodDelete, "_replicator/"+id+"?rev="+node.revOf(id), "")
	}
	for _, id := range []string{"one", "two", "three"} {
		create(id)
	}
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("")
	d.WaitText(".problems", "3 jobs fail")
	d.WaitText(".problems", "the database does not exist")
	d.show("jobs")
	d.WaitText("table.jobs tr:nth-child(3) .state", "crashing")
	d.press("Replication")
	d.Wait("document.querySelector('[aria-sort]')?.innerText === 'Replication' && !document.querySelector('.pager a')")
	// The second page of a list that had more jobs.
	var page struct {
		Next string `json:"next_start_key"`
	}
	const first = "_scheduler/jobs?limit=1&mirrored=false&condition=failed,crashing,pending,running,paused,scheduled,parked,completed"
	require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, first, "")), &page))
	d.show("jobs?sort=name&at=50&start=" + url.QueryEscape(page.Next))
	d.WaitText(".total", "2 to 3 of 3 jobs")
	d.show("jobs?at=50")
	d.WaitText("main", "The list ends before this page.")
	d.press("First page")
	d.WaitText("table.jobs", "_replicator / one")
	d.tab("crashing")
	d.WaitText(".total", "3 jobs")
	node.hosted("target")
	d.ClickOn("document.querySelector('[aria-label=\"Select _replicator / one\"]')")
	d.WaitText(".bulk", "1 of 3 selected")
	d.Accessible()
	d.ClickOn("document.querySelector('[aria-label=\"Select all jobs of this page\"]')")
	d.WaitText(".bulk", "3 of 3 selected")
	d.press("Run now")
	d.WaitText(".notices", "3 jobs: will run as soon as there is a slot")
	d.show("jobs?condition=running")
	d.WaitText(".total", "3 jobs")
	d.ClickOn("document.querySelector('[aria-label=\"Select _replicator / one\"]')")
	d.ClickOn("document.querySelector('[aria-label=\"Select _replicator / two\"]')")
	d.press("Delete")
	d.WaitText("dialog", "Delete 2 replications")
	remove("two")
	d.WaitText(".bulk", "1 of 2 selected")
	create("two")
	d.WaitText(".total", "3 jobs")
	d.WaitText(".bulk", "1 of 3 selected")
	d.WaitText("dialog", "Delete 2 replications")
	d.press("Delete 2 replications")
	d.WaitText(".notices", "2 jobs: deleted")
	d.WaitText(".total", "1 job")
	d.ClickOn("document.querySelector('[aria-label=\"Select _replicator / three\"]')")
	d.press("Delete")
	remove("three")
	d.WaitText(".total", "0 jobs")
	d.WaitText("dialog", "Delete 1 replication")
	d.press("Not now")
	d.Wait("!document.querySelector('dialog')")
	create("three")
	d.WaitText(".total", "1 job")
	d.Wait("!document.querySelector('.bulk')")
	node.ask(http.StatusNotFound, http.MethodGet, "_replicator/one", "")
	node.ask(http.StatusOK, http.MethodGet, "_replicator/three", "")
	d.show("")
	d.WaitText(".verdict", "1 of 500 slots is used.")

	// The answer to a request whose dialog was left changes no other page.
	d.Wait(`(send => (window.fetch = async (url, init) => {
		if (init?.method === 'DELETE') await new Promise(resolve => { window.release = () => { delete window.release; resolve() } })
		return send(url, init)
	}, true))(window.fetch)`)
	leave := func() {
		d.show("documents/_replicator/three")
		d.press("Delete")
		d.press("Delete the replication")
		d.Wait("window.release")
		d.press("Not now")
		d.press("Nodes")
		d.WaitText("h1", "Nodes")
	}
	leave()
	remove("three")
	create("three")
	d.Wait("window.release(), true")
	d.WaitText(".notices", "Delete the replication: Document update conflict.")
	leave()
	d.Wait("window.release(), true")
	d.WaitText(".notices", "_replicator / three: deleted")
	require.Equal(t, "#/nodes", d.Text("location.hash"))
	d.broke(t)
}

// The overview says what needs attention, and mends what it can: a password and a missing target. A node without jobs says how
// to begin.
func TestDashboardProblems(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	d := openDashboard(t, node, adminName, adminPassword)
	d.WaitText("pre", "settee import-couchdb")
	d.Accessible()
	source := node.hosted("source")
	wrong, err := url.Parse(source)
	require.NoError(t, err)
	wrong.User = url.UserPassword("ann", "wrong")
	for id, doc := range map[string]map[string]any{
		"password": {"source": wrong.String(), "target": node.hosted("target"), "continuous": true},
		"missing":  {"source": source, "target": node.url + "missing", "continuous": true},
	} {
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/"+id, document(t, doc))
	}
	d.WaitText(".verdict", "2 of 2 jobs need attention.")
	d.Accessible()

	// Somebody knows of one of them for a while.
	d.press("Acknowledge")
	d.Accessible()
	d.fill("Note", "b.example moves")
	d.press("Acknowledge")
	d.WaitText(".notices", "1 job: acknowledged")
	d.WaitText(".verdict", "1 of 2 jobs needs attention.")
	d.show("jobs/" + url.PathEscape(node.mirror("password").JobID))
	d.WaitText(".acknowledged", "Acknowledged by "+adminName)
	d.WaitText(".acknowledged", ": b.example moves")
	d.Accessible()
	d.press("Take it back")
	d.WaitText(".notices", "the acknowledgement is taken back")
	d.press("Acknowledge")
	d.choose("For", "")
	d.press("Acknowledge")
	d.WaitText(".acknowledged", "Take it back")
	d.press("Take it back")
	d.show("")
	d.WaitText(".verdict", "2 of 2 jobs need attention.")
	d.press("Correct the password")
	d.fill("User", adminName)
	d.fill("Password", adminPassword)
	// A job that fails for the same reason since then does not get the login.
	later := map[string]any{"source": wrong.String(), "target": node.url + "later", "create_target": true, "continuous": true}
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/later", document(t, later))
	d.WaitText(".problems", "2 jobs fail")
	d.WaitText("dialog", "_replicator / password will use this login")
	d.press("Save")
	d.WaitText(".notices", "_replicator / password: the new login is used from the next run on")
	require.Contains(t, node.ask(http.StatusOK, http.MethodGet, "_replicator/later", ""), ":wrong@")
	node.ask(http.StatusOK, http.MethodDelete, "_replicator/later?rev="+node.revOf("later"), "")
	d.press("Create the target")
	d.WaitText("dialog", "create_target is set in the document of the job")
	d.press("Create the target")
	d.WaitText(".verdict", "All 2 jobs are well.")
	require.Eventually(t, func() bool { // the verdict says so already while the job waits for its run
		status, _ := node.request(http.MethodGet, "missing", "")
		return status == http.StatusOK
	}, limit, 10*time.Millisecond)
	d.broke(t)
}

// A node tests the connections of a replication that is not saved, and nothing is left of the test.
func TestDashboardTestsConnections(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("new")
	d.fill("URL of the source", node.hosted("source"))
	d.fill("URL of the target", node.url+"target")
	d.lose(2, http.MethodPost, "/_replicate")
	d.press("Test connection")
	d.WaitText(".connection .trouble", "The source: This node does not answer.")
	assert.JSONEq(t, `{"total_rows":0,"offset":0,"jobs":[]}`, node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", ""))
	d.press("Test connection")
	d.WaitText(".connection .good", "The source can be opened")
	d.WaitText(".connection .trouble", "the database does not exist")
	d.ClickOn("document.querySelector('[type=checkbox]')")
	d.press("Test connection")
	d.WaitText(".connection .good", "The target does not exist yet")
	node.hosted("target")
	d.press("Test connection")
	d.WaitText(".connection .good", "The target can be opened")

	d.choose("Replicate", "mirror")
	d.fill("URL of the source", node.url)
	d.fill("URL of the target", "http://127.0.0.1:1/")
	d.fill("Only these databases", "shop-*")
	d.Wait(labelled("Runs") + ".value === 'continuous'")
	d.WaitText("[role=status]", "The document is valid.")
	d.Accessible()
	d.press("Test connection")
	d.WaitText(".connection .good", "The source can be opened")
	d.WaitText(".connection .trouble", "connection refused")
	d.Wait(`JSON.stringify(JSON.parse(document.querySelector('textarea[rows="16"]').value).mirror) === '{"include":["shop-*"]}'`)
	assert.JSONEq(t, `{"total_rows":0,"offset":0,"jobs":[]}`, node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", ""))
	assert.JSONEq(t, `{"total_rows":0,"offset":0,"jobs":[]}`, node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs?states=failed,completed", ""))
	d.broke(t)
}

// A job with nothing to copy is parked: it is counted apart from those that wait, says what wakes it, and runs again.
func TestDashboardParked(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "replicator/idle_timeout_sec=1")
	source, target := node.hosted("source"), node.hosted("target")
	node.ask(http.StatusCreated, http.MethodPut, "source/one", "{}")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/idle", document(t, map[string]any{
		"source": source, "target": target, "continuous": true,
	}))
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("")
	d.Wait("/^1\\s*parked$/.test(document.querySelector('.counts .parked')?.innerText)")
	d.Accessible()
	d.ClickOn("document.querySelector('.counts .parked')")
	d.WaitText("table.jobs .state", "parked")
	d.WaitText("table.jobs", "waits without a run for changes for")
	d.WaitText(".total", "1 job")
	d.WaitText(".tabs [aria-current]", "parked 1")
	d.tab("pending")
	d.WaitText("main", "No job matches these filters.")
	require.Contains(t, d.Text("location.hash"), "condition=pending")
	d.tab("parked")
	d.press("_replicator / idle")
	d.WaitText(".now", "parked")
	d.WaitText("dt", "Runs again")
	for _, width := range []int64{390, 1600} {
		d.Size(width, 900, false)
		for _, page := range []struct{ name, path, selector, text string }{
			{"overview", "", ".counts .parked", "1"}, {"jobs", "jobs", "table.jobs", "waits without a run for changes for"},
			{"job", "documents/_replicator/idle", "dd", "/_db_updates names source"}, {"databases", "databases", "table", "1 parked"},
		} {
			d.show(page.path)
			d.WaitText(page.selector, page.text)
			d.Accessible()
			assert.Equal(t, "true", d.Text("String(document.documentElement.scrollWidth <= innerWidth)"), "%s at %d", page.name, width)
			if *pictures != "" {
				name := fmt.Sprintf("parked-%s-%d.png", page.name, width)
				require.NoError(t, os.WriteFile(filepath.Join(*pictures, name), d.Screenshot(), 0o644))
			}
		}
	}
	text := node.ask(http.StatusOK, http.MethodGet, "_node/_local/_prometheus", "")
	assert.Contains(t, text, "couchdb_couch_replicator_jobs_pending 0\n", "a parked job does not wait for a slot")
	assert.Contains(t, text, "couchdb_couch_replicator_jobs_total 1\n")
	assert.Contains(t, text, "settee_replicator_jobs{state=\"parked\"} 1\n")
	d.show("documents/_replicator/idle")
	d.WaitText(".now", "parked")
	node.ask(http.StatusCreated, http.MethodPut, "source/two", "{}")
	d.WaitText(".progress", "2 written")
	d.Wait("[...document.querySelectorAll('td')].filter(e => e.innerText === 'parked').length >= 2") // of runs
	d.press("Run now")
	d.Wait("[...document.querySelectorAll('td')].filter(e => e.innerText === 'parked').length >= 3") // of runs
	d.broke(t)
}

// The page of a mirror says how many databases are up to date, and which fail; its replications are listed.
func TestDashboardMirror(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	node.create("shop-one", "first")
	node.create("shop-two", "first")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/standby", fmt.Sprintf(
		`{"source":%q,"target":%q,"continuous":true,"mirror":{"include":["shop-*"],"prefix":"copy-"}}`, node.url, node.url))
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/broken", fmt.Sprintf(
		`{"source":%q,"target":"http://127.0.0.1:1/","continuous":true,"retries_per_request":0,"mirror":{"include":["shop-one"]}}`, node.url))
	node.awaitMirror("standby", 2)
	d := openDashboard(t, node, adminName, adminPassword)
	d.WaitText("main", "2 of 2 databases up to date")
	d.WaitText(".verdict", "and 2 mirrors need none.")
	d.WaitText(".counts", "need attention")
	d.press("_replicator / standby")
	d.WaitText(".progress", "2 of 2 databases up to date")
	d.WaitText("main", "All changes that settee has heard of are at the target.")
	d.WaitText("table", "copy-shop-two")
	d.WaitText("main", "Both servers have not been compared.")
	d.press("Verify")
	d.WaitText("main", "The target has everything of 2 databases, 2 revisions, verified")
	d.press("Run now")
	d.WaitText("body", "compares all databases now")
	d.press("Pause")
	d.WaitText(".notices", "paused, with all its databases")
	d.WaitText(".now", "is paused by its document")
	d.WaitText("main", "The mirror is paused. What has changed since then is copied when it is resumed.")
	d.WaitText("table", "is paused, because its mirror is")
	d.press("Verify")
	d.WaitText(".notices", "verifies all databases as soon as it is resumed")
	d.Accessible()
	d.press("Resume")
	d.WaitText(".progress", "2 of 2 databases up to date")
	d.press("settee")
	d.show("jobs")
	d.WaitText(".total", "2 jobs")
	d.press("List them, too")
	d.WaitText(".total", "5 jobs")
	d.press("Only the mirrors")
	d.press("_replicator / broken")
	d.WaitText("main", "A change of shop-one may be missing at the target")
	d.press("shop-one")
	d.WaitText("main", "crashing")
	d.press("a mirror")
	d.WaitText("details.group", "1 database for")
	d.WaitText("details.group .bad", "connection refused")
	d.broke(t)
}

// A mirror is turned round from its page when the target has everything, `_security` included. The page says how far that is, also after
// it was closed, and until the document is written it can be stopped.
func TestDashboardFailover(t *testing.T) {
	t.Parallel()
	a, b, node := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	a.create("films", "first")
	node.put("m", mirrorDocument(a, b, `{}`))
	node.awaitMirror("m", 1)
	const changed = `{"admins":{"names":["ann"]},"members":{"names":["ann"]}}`
	a.ask(http.StatusOK, http.MethodPut, "films/_security", changed) // nothing tells the mirror of this
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("documents/_replicator/m")
	d.lose(1, http.MethodPut, "/_replicator/m")
	d.press("Fail over")
	d.WaitText("dialog", "Have all writers of "+strings.TrimPrefix(a.plain(), "http://")+" stopped?")
	d.Accessible()
	d.press("Turn the mirror round")
	d.show("jobs") // it goes on
	d.Wait("window.lost === 1")
	require.Eventually(t, func() bool {
		return strings.Contains(node.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/m", ""), `"source":"`+b.plain())
	}, limit, 10*time.Millisecond)
	d.show("documents/_replicator/m")
	turned := strings.TrimPrefix(b.plain(), "http://") + " is mirrored to " + strings.TrimPrefix(a.plain(), "http://") + ", and everything is there."
	d.WaitText("main", turned)
	d.Go("about:blank")
	d.show("documents/_replicator/m")
	d.WaitText("main", turned)
	require.JSONEq(t, changed, b.ask(http.StatusOK, http.MethodGet, "films/_security", ""))
	b.ask(http.StatusCreated, http.MethodPut, "films/second", `{}`)
	require.Eventually(t, exists(t, a.url+"films/second"), limit, 10*time.Millisecond)

	node.put("broken", fmt.Sprintf(`{"source":%q,"target":"http://127.0.0.1:1/","continuous":true,"mirror":{}}`, a.url))
	rev := node.revOf("broken")
	d.countWaits()
	d.show("documents/_replicator/broken")
	d.press("Fail over")
	d.press("Turn the mirror round")
	d.WaitText("main", "1 of 4: waiting until the mirror has copied everything")
	d.press("Stop")
	d.WaitText("main", "To move the writers of")
	d.press("Pause")
	d.WaitText(".now", "is paused by its document")
	d.press("Fail over")
	d.press("Turn the mirror round")
	d.WaitText("main", "The mirror is paused by its document: resume it first. Nothing was changed")
	require.NotEqual(t, rev, node.revOf("broken"), "it was paused")
	require.Contains(t, node.ask(http.StatusOK, http.MethodGet, "_replicator/broken", ""), `"target":"http://127.0.0.1:1/"`)
	d.Wait("window.mostWaits === 3") // of the six connections of a browser, although the page shows more that changes
	d.broke(t)
}

// A run whose source does not answer is stuck until it does. One that waits for changes is not.
func TestDashboardStuck(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "replicator/stuck_after_sec=1")
	source, target := node.hosted("source"), node.hosted("target")
	answers := make(chan struct{})
	answer := sync.OnceFunc(func() { close(answers) })
	to, err := url.Parse(node.url)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	peer := couchtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-answers
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(answer)
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/waits", document(t, map[string]any{
		"source": source, "target": target, "continuous": true,
	}))
	at, err := url.Parse(source)
	require.NoError(t, err)
	at.Host = strings.TrimPrefix(peer.URL, "http://")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/stuck", document(t, map[string]any{
		"source": at.String(), "target": target, "continuous": true,
	}))
	d := openDashboard(t, node, adminName, adminPassword)
	d.show("")
	// On a busy machine both may be slow to start.
	d.Wait("(text => text.includes('no progress for') && !text.includes('_replicator / waits'))(document.querySelector('main').innerText)")
	d.Accessible()
	d.show("jobs?sort=stuck")
	d.WaitText("table.jobs", "no progress for")
	d.Wait("document.querySelectorAll('table.jobs tbody tr').length === 1")
	d.press("_replicator / stuck")
	d.WaitText("dt", "No progress")
	answer()
	d.WaitText(".now", "has copied everything, and waits for changes")
	d.Wait("![...document.querySelectorAll('dt')].some(e => e.innerText === 'No progress')")
	d.show("")
	d.WaitText(".verdict", "All 2 jobs are well.")
	d.broke(t)
}

// A user who is no administrator sees their own jobs, and nothing of others.
func TestDashboardOfAUser(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	for _, name := range []string{"ann", "eve"} {
		node.ask(http.StatusCreated, http.MethodPut, "_users/org.couchdb.user:"+name, document(t, map[string]any{
			"name": name, "password": name, "roles": []string{}, "type": "user",
		}))
	}
	replicate := func(d dashboard, id string) {
		d.press("New replication")
		d.Wait(labelled("Replicator database") + "?.value === ''") // they may not write into _replicator
		d.fill("URL of the source", strings.Replace(withoutAdmin(node.url), "http://", "http://me:s3cret@", 1)+"missing")
		d.fill("URL of the target", node.url+"copy")
		d.choose("Runs", "continuous")
		d.fill("Only these documents", id)
		d.WaitText("[role=status]", "The document is valid.")
		d.press("Replicate")
		d.WaitText("h1", "_replicate of")
	}
	ann, eve := openDashboard(t, node, "ann", "ann"), openDashboard(t, node, "eve", "eve")
	replicate(ann, "hers")
	ann.press("Jobs")
	ann.WaitText(".total", "1 job of yours")
	its := ann.Text("document.querySelector('table.jobs td a').href")
	eve.WaitText(".total", "0 jobs")
	eve.Go(its)
	eve.WaitText(".trouble", "You are not a server admin.")
	for _, page := range []string{"overview", "nodes", "databases", "configuration"} {
		eve.show(page)
		eve.WaitText("h1", "Jobs")
	}
	require.NotContains(t, eve.Text("document.body.innerText"), "missing")
	ann.press("_replicate of ann")
	ann.WaitText("pre", `"hers"`)
	ann.Wait("navigator.clipboard.writeText = async text => { window.copied = text }, true")
	ann.press("Copy as curl")
	ann.Wait("window.copied?.startsWith('curl -X POST ') && window.copied.includes('_replicate') && window.copied.includes('\"hers\"')")
	require.NotContains(t, ann.Text("window.copied"), "s3cret")
	ann.press("End")
	ann.WaitText("dialog", "The job ends.")
	require.NotContains(t, ann.Text("document.querySelector('dialog').innerText"), "pause")
	ann.press("End the replication")
	ann.WaitText(".total", "0 jobs")
	// The address takes over what was typed while the user types on.
	ann.Wait(`(f => {
		const type = text => (f.value += text, f.dispatchEvent(new Event('input', {bubbles: true})))
		addEventListener('hashchange', () => (type('c'), setTimeout(() => type('ator'), 100)), {once: true})
		type('_repli')
		return true
	})(` + labelled("Database") + ")")
	ann.WaitText("main", "There is no replicator database _replicator that you administer.")
	ann.broke(t)
}
