package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"settee/frontend/accounts"
	"settee/frontend/internal/access"
	"settee/frontend/internal/auth"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/jsontext"
)

// Configuration is the configuration of a node, which may change while the node runs. *config.Live is one, and
// documents the methods.
type Configuration interface {
	Current() *config.Config
	Set(ctx context.Context, section, key, text string, checks ...config.Check) (old string, err error)
	Delete(ctx context.Context, section, key string, checks ...config.Check) (old string, err error)
	Reload() error
}

// Defaults is a configuration that cannot be changed: the default of each setting.
type Defaults struct{}

// Current returns the defaults.
func (Defaults) Current() *config.Config { return new(config.Config) }

// Set fails.
func (Defaults) Set(context.Context, string, string, string, ...config.Check) (string, error) {
	return "", errNoConfiguration
}

// Delete fails.
func (Defaults) Delete(context.Context, string, string, ...config.Check) (string, error) {
	return "", errNoConfiguration
}

// Reload does nothing.
func (Defaults) Reload() error { return nil }

var errNoConfiguration = web.NotImplemented("the configuration of this node cannot be changed")

// WholeConfig answers with all settings, secrets masked. With ?origins=true each setting is an object, which says where
// the value comes from.
func (e *Endpoints) WholeConfig(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	origins := q.Flag("origins", false)
	if q.Err != nil {
		return q.Err
	}
	if origins {
		return web.Respond(w, r, http.StatusOK, e.Config.Current().Sourced())
	}
	return web.Respond(w, r, http.StatusOK, e.Config.Current().Shown())
}

// ConfigSection answers with the settings of a section.
func (e *Endpoints) ConfigSection(w http.ResponseWriter, r *http.Request) error {
	section := e.Config.Current().Shown()[web.PathValue(r, "section")]
	if section == nil {
		section = map[string]string{}
	}
	return web.Respond(w, r, http.StatusOK, section)
}

// ConfigValue answers with the value of a setting.
func (e *Endpoints) ConfigValue(w http.ResponseWriter, r *http.Request) error {
	value, ok := e.Config.Current().Shown()[web.PathValue(r, "section")][web.PathValue(r, "key")]
	if !ok {
		return unknownConfigValue()
	}
	return web.Respond(w, r, http.StatusOK, value)
}

// SetConfigValue writes the value of a setting to the store, and answers with the previous value. As in CouchDB the
// value is written even if the client hangs up: tools such as add-cors-to-couchdb send several settings at once, and
// end when the first of them is refused.
func (e *Endpoints) SetConfigValue(w http.ResponseWriter, r *http.Request) error {
	section, key := web.PathValue(r, "section"), web.PathValue(r, "key")
	if err := e.checkChange(r, section, key); err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r, e.Config.Current())
	if err != nil {
		return err
	}
	if !jsontext.Valid(body) {
		return web.ErrInvalidJSON
	}
	var text *string
	if json.Unmarshal(body, &text) != nil || text == nil {
		return web.BadRequest("a JSON string expected")
	}
	ctx, cancel := web.LastingStoreContext(r)
	defer cancel()
	value := strings.TrimSpace(*text)
	if section == adminsSection && value != "" { // the empty value removes the administrator
		if value, err = e.hashAdmin(ctx, key, value); err != nil {
			return err
		}
	}
	old, err := e.Config.Set(ctx, section, key, value, config.IfChangeable(section, key), accounts.KeepAdmin)
	if err != nil {
		return configFailure(err)
	}
	if config.Unused(section, key, value) { // the log says why
		w.Header().Set("X-Settee-Unused", url.PathEscape(section)+"/"+url.PathEscape(key))
	}
	return web.Respond(w, r, http.StatusOK, old)
}

// hashAdmin returns the hash of the password of an administrator. The password may be hashed already. A name or a
// hash that cannot be used to log in is refused.
func (e *Endpoints) hashAdmin(ctx context.Context, name, password string) (string, error) {
	if strings.Contains(name, ":") {
		return "", web.BadRequest("[admins]: a name has no colon, at which basic authentication ends it")
	}
	given, hashed, err := auth.ParseAdmin(password)
	most := config.MaxPasswordIterations.Get(e.Config.Current())
	switch {
	case err != nil:
		return "", web.BadRequest("[admins] " + name + ": it looks hashed, and is not what CouchDB writes")
	case hashed && given.Iterations > most:
		return "", web.BadRequest(fmt.Sprintf("[admins] %s: it has %d iterations, and %v is %d", name, given.Iterations,
			config.MaxPasswordIterations, most))
	case hashed:
		return password, nil
	}
	hash, err := e.Accounts.Hash(ctx, password)
	if err != nil {
		return "", access.LoginFailure(err)
	}
	return hash.String(), nil
}

// DeleteConfigValue removes a setting from the store, even if the client hangs up, and answers with its value.
func (e *Endpoints) DeleteConfigValue(w http.ResponseWriter, r *http.Request) error {
	section, key := web.PathValue(r, "section"), web.PathValue(r, "key")
	if err := e.checkChange(r, section, key); err != nil {
		return err
	}
	ctx, cancel := web.LastingStoreContext(r)
	defer cancel()
	old, err := e.Config.Delete(ctx, section, key, config.IfChangeable(section, key), accounts.KeepAdmin)
	if err != nil {
		return configFailure(err)
	}
	return web.Respond(w, r, http.StatusOK, old)
}

// adminsSection is the section of passwords, which the store has only hashed.
const adminsSection = "admins"

// checkChange refuses to change a setting that cannot be changed over HTTP, before the request's body is read.
func (e *Endpoints) checkChange(r *http.Request, section, key string) error {
	if err := e.Config.Current().Changeable(section, key); err != nil {
		return configFailure(err)
	}
	return checkPersist(r)
}

// checkPersist refuses X-Couch-Persist: false. In CouchDB it changes one node until the node restarts. Here values
// are in the store, and hold for all nodes.
func checkPersist(r *http.Request) error {
	if r.Header.Get("X-Couch-Persist") == "false" {
		return web.BadRequest("X-Couch-Persist: false is not supported: values are kept in the store, and hold for all nodes")
	}
	return nil
}

// ReloadConfig makes the node read its files again.
func (e *Endpoints) ReloadConfig(w http.ResponseWriter, r *http.Request) error {
	if err := e.Config.Reload(); err != nil {
		return web.BadRequest(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return web.RespondOK(w, r, http.StatusOK)
}

func unknownConfigValue() error { return web.NotFound("unknown_config_value") }

// configFailure returns the failure for an error of the configuration. It returns other errors as they are.
func configFailure(err error) error {
	var refused *config.RefusedError
	switch {
	case errors.As(err, &refused):
		return web.BadRequest(refused.Reason)
	case errors.Is(err, config.ErrNotSet):
		return unknownConfigValue()
	case errors.Is(err, config.ErrBlacklisted):
		return web.Forbidden(err.Error())
	case errors.Is(err, config.ErrNotWhitelisted):
		return web.NewFailure(http.StatusBadRequest, "modification_not_allowed", err.Error())
	case errors.Is(err, accounts.ErrNoAdmin):
		return web.NewFailure(http.StatusConflict, "conflict", err.Error())
	}
	return err
}
