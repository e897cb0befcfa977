package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/config"
)

// Configuration is the configuration of a node, which changes while the node runs:
// *config.Live is one, and says what the methods do.
type Configuration interface {
	Current() *config.Config
	Set(ctx context.Context, section, key, text string, checks ...config.Check) (old string, err error)
	Delete(ctx context.Context, section, key string, checks ...config.Check) (old string, err error)
	Reload() error
}

// defaults is a configuration that nobody can change.
type defaults struct{}

func (defaults) Current() *config.Config { return new(config.Config) }

func (defaults) Set(context.Context, string, string, string, ...config.Check) (string, error) {
	return "", errNoConfiguration
}

func (defaults) Delete(context.Context, string, string, ...config.Check) (string, error) {
	return "", errNoConfiguration
}

func (defaults) Reload() error { return nil }

var errNoConfiguration = notImplemented("the configuration of this node cannot be changed")

// nodeRoutes are the paths of what a node says of itself, and is told.
func (h *Handler) nodeRoutes(r *mux.Router) {
	r.Handle("/_node", h.action(func(http.ResponseWriter, *http.Request) error {
		return badRequest("Incomplete path to _node request")
	}))
	for path, m := range map[string]methods{
		"":                 {http.MethodGet: h.nodeName},
		"/_config":         {http.MethodGet: h.wholeConfig},
		"/_config/_reload": {http.MethodPost: h.reloadConfig},
	} {
		r.Handle("/_node/{node}"+path, h.ofNode(m))
	}
	if h.metrics != nil {
		r.Handle("/_node/{node}/_prometheus", h.ofNode(methods{http.MethodGet: h.prometheus}))
	}
	r.Handle("/_node/{node}/_config/{section}", h.ofNode(methods{http.MethodGet: h.configSection}))
	r.Handle("/_node/{node}/_config/{section}/{key}", h.ofNode(methods{
		http.MethodGet: h.configValue, http.MethodPut: h.setConfigValue, http.MethodDelete: h.deleteConfigValue,
	}))
	r.Handle("/_node/{node}/{rest:.+}", h.action(unknownPath))
}

// ofNode serves a path of this node, by its name or as _local. A node does not know the
// others. All of these paths are for server administrators: see rightTo.
func (h *Handler) ofNode(m methods) http.Handler {
	endpoint := h.endpoint(m)
	return h.action(func(w http.ResponseWriter, r *http.Request) error {
		if name := pathValue(r, "node"); name != "_local" && name != h.node {
			return notFound("no such node: " + cut(name))
		}
		endpoint.ServeHTTP(w, r)
		return nil
	})
}

func (h *Handler) nodeName(w http.ResponseWriter, r *http.Request) error {
	return respond(w, r, http.StatusOK, map[string]string{"name": h.node})
}

// prometheus shows what this node counts.
func (h *Handler) prometheus(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout)) // see ServeHTTP
	h.metrics.ServeHTTP(w, r)
	return nil
}

func (h *Handler) wholeConfig(w http.ResponseWriter, r *http.Request) error {
	return respond(w, r, http.StatusOK, h.config.Current().Shown())
}

func (h *Handler) configSection(w http.ResponseWriter, r *http.Request) error {
	section := h.config.Current().Shown()[pathValue(r, "section")]
	if section == nil {
		section = map[string]string{}
	}
	return respond(w, r, http.StatusOK, section)
}

func (h *Handler) configValue(w http.ResponseWriter, r *http.Request) error {
	value, ok := h.config.Current().Shown()[pathValue(r, "section")][pathValue(r, "key")]
	if !ok {
		return unknownConfigValue()
	}
	return respond(w, r, http.StatusOK, value)
}

// setConfigValue puts a value into the store. It answers the one that held before.
func (h *Handler) setConfigValue(w http.ResponseWriter, r *http.Request) error {
	if err := checkPersist(r); err != nil {
		return err
	}
	body, err := h.readJSON(w, r)
	if err != nil {
		return err
	}
	if !json.Valid(body) {
		return badRequest("invalid UTF-8 JSON")
	}
	var text *string
	if json.Unmarshal(body, &text) != nil || text == nil {
		return badRequest("a JSON string expected")
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	section, key, value := pathValue(r, "section"), pathValue(r, "key"), strings.TrimSpace(*text)
	if section == adminsSection && value != "" { // which takes it out
		if value, err = h.hashAdmin(ctx, key, value); err != nil {
			return err
		}
	}
	old, err := h.config.Set(ctx, section, key, value, accounts.KeepAdmin)
	if err != nil {
		return configFailure(err)
	}
	return respond(w, r, http.StatusOK, old)
}

// hashAdmin returns the hash of the password that an administrator is to have, which may be hashed already. What
// nobody could log in with is refused.
func (h *Handler) hashAdmin(ctx context.Context, name, password string) (string, error) {
	if strings.Contains(name, ":") {
		return "", badRequest("[admins]: a name has no colon, at which basic authentication ends it")
	}
	given, hashed, err := auth.ParseAdmin(password)
	most := config.MaxPasswordIterations.Get(h.config.Current())
	switch {
	case err != nil:
		return "", badRequest("[admins] " + name + ": it looks hashed, and is not what CouchDB writes")
	case hashed && given.Iterations > most:
		return "", badRequest(fmt.Sprintf("[admins] %s: it has %d iterations, and %v is %d", name, given.Iterations,
			config.MaxPasswordIterations, most))
	case hashed:
		return password, nil
	}
	hash, err := h.accounts.Hash(ctx, password)
	if err != nil {
		return "", loginFailure(err)
	}
	return hash.String(), nil
}

// deleteConfigValue takes a value out of the store, and answers it.
func (h *Handler) deleteConfigValue(w http.ResponseWriter, r *http.Request) error {
	if err := checkPersist(r); err != nil {
		return err
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	old, err := h.config.Delete(ctx, pathValue(r, "section"), pathValue(r, "key"), accounts.KeepAdmin)
	if err != nil {
		return configFailure(err)
	}
	return respond(w, r, http.StatusOK, old)
}

// adminsSection has passwords, of which the store has the hashed form only.
const adminsSection = "admins"

// checkPersist refuses what CouchDB does to one node until it starts again: here a value
// is in the store, and holds for all nodes.
func checkPersist(r *http.Request) error {
	if r.Header.Get("X-Couch-Persist") == "false" {
		return badRequest("X-Couch-Persist: false is not supported: values are kept in the store, and hold for all nodes")
	}
	return nil
}

// reloadConfig has the node read its own files again.
func (h *Handler) reloadConfig(w http.ResponseWriter, r *http.Request) error {
	if err := h.config.Reload(); err != nil {
		return badRequest(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return respond(w, r, http.StatusOK, okay{true})
}

func unknownConfigValue() error { return notFound("unknown_config_value") }

// configFailure returns what a client is told of an error of the configuration's; other
// errors as they are.
func configFailure(err error) error {
	var refused *config.RefusedError
	switch {
	case errors.As(err, &refused):
		return badRequest(refused.Reason)
	case errors.Is(err, config.ErrNotSet):
		return unknownConfigValue()
	case errors.Is(err, accounts.ErrNoAdmin):
		return &failure{http.StatusConflict, "conflict", err.Error()}
	}
	return err
}
