//go:build !fdb

// No other engine changes what these pages show.

package main

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/browsertest"
)

// openFauxton starts a node and opens CouchDB's pages with it, as its administrator.
func openFauxton(t *testing.T) (*process, *browsertest.Page, string) {
	t.Helper()
	page := browsertest.Open(t) // without a browser there is nothing to do
	node := serveNode(t, "mem:")
	at, err := url.Parse(withoutAdmin(node.url))
	require.NoError(t, err)
	home := browsertest.Fauxton(t, at)
	page.Go(home + "#login")
	login(page, adminName, adminPassword)
	return node, page, home
}

func login(page *browsertest.Page, name, password string) {
	page.Type("#login #username", name)
	page.Type("#login #password", password)
	page.Click("#submit")
	page.WaitText("table", "_replicator") // the list of databases
}

// The configuration page shows the settings of the node, and changes them.
func TestFauxtonConfiguration(t *testing.T) {
	t.Parallel()
	node, page, home := openFauxton(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	page.Go(home + "#_config")
	page.Wait("location.hash === '#_config/" + host + "'") // it has found the node in _membership
	page.WaitText(".config-item", "500")
	page.ClickOn("[...document.querySelectorAll('.config-show-value')].find(e => e.previousElementSibling.innerText === 'max_jobs')")
	page.Type(".config-value-input", "7")
	page.Click(".btn-config-save")
	page.WaitText("body", "Option max_jobs saved")
	assert.Equal(t, "\"7\"\n", node.ask(http.StatusOK, http.MethodGet, "_node/_local/_config/replicator/max_jobs", ""))
	assert.Empty(t, page.Console())
}

// The setup page says that nothing has to be set up.
func TestFauxtonSetup(t *testing.T) {
	t.Parallel()
	_, page, home := openFauxton(t)
	page.Go(home + "#setup")
	page.WaitText(".setup-screen", "configured for production usage as a single node")
	assert.Empty(t, page.Console())
}

// submit clicks on the button of a form. Fauxton's forms throw until it has the list of nodes: then it clicks again.
func submit(page *browsertest.Page, button string) {
	page.Wait(`(() => {
		let done = true
		const failed = () => { done = false }
		addEventListener("error", failed)
		document.querySelector("` + button + `").click()
		removeEventListener("error", failed)
		return done
	})()`)
}

// The pages for administrators add one, and change a password.
func TestFauxtonAdministrators(t *testing.T) {
	t.Parallel()
	node, page, home := openFauxton(t)
	status := func(name, password string) int {
		got, _ := request(t, http.MethodGet, strings.Replace(withoutAdmin(node.url), "://", "://"+name+":"+password+"@", 1)+"_all_dbs", "")
		return got
	}
	page.Go(home + "#addAdmin")
	page.Type("#create-admin-form #username", "second")
	page.Type("#create-admin-form #password", "other")
	submit(page, "#create-admin")
	page.WaitText("body", "admin created")
	assert.Equal(t, http.StatusOK, status("second", "other"))

	page.Go(home + "#logout")
	login(page, "second", "other")
	page.Go(home + "#changePassword")
	page.Type("#change-password #password", "changed")
	page.Type("#change-password #password-confirm", "changed")
	submit(page, "#change-password button")
	page.WaitText("body", "Your password has been updated")
	assert.Equal(t, http.StatusOK, status("second", "changed"))
	assert.Equal(t, http.StatusUnauthorized, status("second", "other"))
}
