package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/outbound"
	"settee/pkg/redact"
)

// Printing a value with a secret never shows the secret.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	m := &marks{}
	secret := m.plant("printed")
	cfg, _, err := config.Load(config.Options{Flags: []string{"admins/root=" + secret, "chttpd_auth/secret=" + secret, "other/url=http://u:" + secret + "@h"}})
	require.NoError(t, err)
	endpoint := couch.DefaultConfig()
	endpoint.URL, endpoint.Username, endpoint.Password = "http://h/x", "u", secret
	endpoint.Header, endpoint.Proxy = http.Header{"X-Token": {secret}}, "http://u:"+secret+"@h"
	endpoint.Secrets = redact.Set{}.With(secret)
	opened, err := couch.Open(endpoint)
	require.NoError(t, err)
	defer opened.Close()
	body := json.RawMessage(`{"password":"` + secret + `"}`)
	for _, value := range []any{
		cfg, config.Value{Section: "admins", Key: "root", Text: secret}, config.Layer{{Section: "jwt_keys", Key: "hmac:a", Text: secret}},
		endpoint, opened, outbound.TLSConfig{KeyPassword: secret}, outbound.PoolConfig{TLS: outbound.TLSConfig{KeyPassword: secret}},
		outbound.TransportOptions{Proxy: "http://u:" + secret + "@h"},
		fdbjobs.Job{ID: "j", Args: body}, fdbjobs.Spec{ID: "j", Args: body},
		docstore.Edit{ID: "d", Body: docjson.Must(body)}, docjson.Must(body), docstore.Document{ID: "d", Body: body}, docstore.LocalDocument{ID: "_local/d", Body: body},
		docstore.Change{ID: "d", Body: docjson.Must(body)}, accounts.Write{ID: "d", Body: docjson.Must(body), Before: body},
	} {
		var text bytes.Buffer
		for _, shown := range []any{value, &value, []any{value}, map[string]any{"x": value}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
				fmt.Fprintf(&text, verb+"\n", shown)
			}
			slog.New(slog.NewJSONHandler(&text, nil)).Info("x", "value", shown)
			slog.New(slog.NewTextHandler(&text, nil)).Info("x", "value", shown)
			log := zerolog.New(&text)
			log.Info().Interface("value", shown).Msg("x")
		}
		require.Empty(t, m.in(text.String()), "%T: %s", value, &text)
	}
}

// The command's log removes passwords from URLs.
func TestTheLogIsTheLastLineOfDefence(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newLog(&out, zerolog.WarnLevel)
	log.Error().Str("any", "http://u:s3cret@h/").Msg("at http://u:s3cret@h/")
	require.Contains(t, out.String(), "http://u:*****@h/")
	require.NotContains(t, out.String(), "s3cret")
}
