package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"settee/frontend/accounts"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// systemDatabases returns the databases that every server has.
func systemDatabases() []string { return []string{"_users", "_replicator"} }

// SetupState answers GET /_cluster_setup. Every server has an administrator, and each node belongs to the cluster of its
// store. So what may be missing is a database, after somebody has deleted it.
func (e *Endpoints) SetupState(w http.ResponseWriter, r *http.Request) error {
	q, databases := web.NewQuery(r), systemDatabases()
	q.JSON("ensure_dbs_exist", "a list of names of databases", &databases)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	missing, err := e.missing(ctx, databases)
	if err != nil {
		return err
	}
	live, _ := e.nodeNames()
	state := "cluster_finished"
	switch {
	case len(live) == 1 && len(missing) == 0:
		state = "single_node_enabled"
	case len(live) == 1:
		state = "single_node_disabled"
	case len(missing) > 0:
		state = "cluster_enabled"
	}
	return web.Respond(w, r, http.StatusOK, map[string]string{"state": state})
}

// missing returns the databases that do not exist.
func (e *Endpoints) missing(ctx context.Context, databases []string) (missing []string, err error) {
	if most := config.MaxDatabaseInfos.Get(e.Config.Current()); len(databases) > most {
		return nil, web.BadRequest(fmt.Sprintf("`ensure_dbs_exist` has %d names; the most is %d (%s)", len(databases), most, config.MaxDatabaseInfos))
	}
	for _, name := range databases {
		switch _, err := e.Documents.Database(ctx, name); {
		case errors.Is(err, docstore.ErrDatabaseNotFound):
			missing = append(missing, name)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// setup is the body of POST /_cluster_setup.
type setup struct {
	Action       string          `json:"action"`
	Databases    []string        `json:"ensure_dbs_exist"`
	Username     string          `json:"username"`
	Password     string          `json:"password"`
	PasswordHash string          `json:"password_hash"`
	BindAddress  string          `json:"bind_address"`
	Port         json.RawMessage `json:"port"` // a number or a string
}

// SetUp answers POST /_cluster_setup.
func (e *Endpoints) SetUp(w http.ResponseWriter, r *http.Request) error {
	if err := web.RequireJSON(r); err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r, e.Config.Current())
	if err == nil {
		err = web.RequireObject(body)
	}
	if err != nil {
		return err
	}
	given := setup{Databases: systemDatabases()}
	if err := json.Unmarshal(body, &given); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return web.BadRequest("`" + wrong.Field + "` has a value of the wrong type")
		}
		return web.ErrInvalidJSON
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	switch given.Action {
	case "finish_cluster":
		err = e.finish(ctx, given)
	case "enable_single_node":
		err = e.enable(ctx, given)
	case "enable_cluster", "add_node", "remove_node", "receive_cookie":
		return web.NotImplemented("nodes that have the same store are a cluster, and need no setup: start a node on this store to add it, and stop it to remove it")
	default:
		return web.BadRequest("Invalid Action")
	}
	if err != nil {
		return err
	}
	return web.RespondOK(w, r, http.StatusCreated)
}

// finish creates the databases that are missing. If there are none, the setup was finished before.
func (e *Endpoints) finish(ctx context.Context, given setup) error {
	missing, err := e.missing(ctx, given.Databases)
	if err == nil && len(missing) == 0 {
		err = web.BadRequest("Cluster is already finished")
	}
	if err != nil {
		return err
	}
	return e.create(ctx, missing)
}

// create creates databases, unless they exist by now.
func (e *Endpoints) create(ctx context.Context, databases []string) error {
	for _, name := range databases {
		if _, err := e.Documents.Create(ctx, name); err != nil && !errors.Is(err, docstore.ErrDatabaseExists) {
			return web.StoreFailure(err)
		}
	}
	return nil
}

// checkAddress refuses a setup that asks for an address at which this node does not listen: a node that runs cannot
// change its address.
func (e *Endpoints) checkAddress(given setup) error {
	cfg := e.Config.Current()
	own := cfg.Shown()["chttpd"]
	port := strings.Trim(string(given.Port), `"`)
	var wrong string
	switch {
	case given.BindAddress != "" && !listensOn(config.BindAddress.Get(cfg), given.BindAddress):
		wrong = "bind_address"
	case port != "" && port != own["port"]:
		wrong = "port"
	default:
		return nil
	}
	return web.BadRequest(fmt.Sprintf("`%s` is %s, and a node reads it only when it starts: set [chttpd] %s in its files", wrong, own[wrong], wrong))
}

// listensOn reports whether a node with its own bind_address listens as another one asks for. A node that listens on all
// addresses does so for 0.0.0.0, too. It does not for one address: that would keep others out.
func listensOn(own netip.Addr, asked string) bool {
	all := own == netip.IPv6Unspecified()
	if asked == "any" {
		return all
	}
	addr, err := netip.ParseAddr(asked)
	return err == nil && (addr == own || all && addr.IsUnspecified())
}

// enable sets the password of an administrator, if there is one, and creates the databases that are missing.
func (e *Endpoints) enable(ctx context.Context, given setup) error {
	if err := e.checkAddress(given); err != nil {
		return err
	}
	switch password := given.PasswordHash + given.Password; {
	case (given.Username == "") != (password == ""), given.PasswordHash != "" && given.Password != "":
		return web.BadRequest("`username` needs either `password` or `password_hash`")
	case given.Username != "":
		hash, err := e.hashAdmin(ctx, given.Username, password)
		if err != nil {
			return err
		}
		if _, err := e.Config.Set(ctx, adminsSection, given.Username, hash, config.IfChangeable(adminsSection, given.Username), accounts.KeepAdmin); err != nil {
			return configFailure(err)
		}
	}
	missing, err := e.missing(ctx, given.Databases)
	if err != nil {
		return err
	}
	return e.create(ctx, missing)
}
