package replicator_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"settee/replicator"
)

const oauth2Auth = `{"oauth2": {"token_url": "https://tokens.example/oauth/token", "client_id": "me", "client_secret": "s3cret-1",
	"scopes": ["read", "write"], "audience": "couch"}}`

var apiKeys = []string{`{"ibm": {"api_key": "s3cret-1"}}`, `{"ibm": {"iam": {"api_key": "s3cret-1"}}}`, `{"iam": {"api_key": "s3cret-1"}}`}

// withAuth returns the replication whose source has an auth.
func withAuth(t *testing.T, auth string) *replicator.Replication {
	t.Helper()
	return parse(t, []byte(`{"source":{"url":"http://a.example/db","auth":`+auth+`},"target":"http://b.example/db"}`))
}

// How tokens are requested follows from the members, in each spelling.
func TestTokenRequests(t *testing.T) {
	t.Parallel()
	want := &clientcredentials.Config{
		TokenURL: "https://tokens.example/oauth/token", ClientID: "me", ClientSecret: "s3cret-1", Scopes: []string{"read", "write"},
		EndpointParams: map[string][]string{"audience": {"couch"}},
	}
	r := withAuth(t, oauth2Auth)
	require.Equal(t, want, r.Source.Token(""))
	spelled := withAuth(t, `{"oauth2": {"client_secret": "s3cret-1", "client_id": "me", "audience": "couch", "scopes": " read  write",
		"token_url": "https://tokens.example/oauth/token"}}`)
	require.Equal(t, want, spelled.Source.Token(""))
	require.True(t, r.Equal(spelled))
	require.Empty(t, withAuth(t, `{"oauth2": {"token_url": "http://h", "client_id": "a", "client_secret": "b"}}`).Source.Token("").Scopes)
	require.Nil(t, withAuth(t, `{}`).Source.Token(""))
	require.Nil(t, withAuth(t, `{"basic": {"username": "u", "password": "p"}}`).Source.Token(""))
}

// The spellings of an API key of IBM Cloud are one. CouchDB has the first one, IBM's libraries the second and the third.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	want := &clientcredentials.Config{TokenURL: "https://iam.example/token", AuthStyle: oauth2.AuthStyleInParams, EndpointParams: map[string][]string{
		"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "response_type": {"cloud_iam"}, "apikey": {"s3cret-1"},
	}}
	first := withAuth(t, apiKeys[0])
	for _, auth := range apiKeys {
		r := withAuth(t, auth)
		require.Equal(t, want, r.Source.Token("https://iam.example/token"), auth)
		require.True(t, r.Equal(first), auth)
		require.Empty(t, r.Warnings(), auth)
	}
	// The first kind of several counts, and what does not count is named.
	for auth, unused := range map[string]string{
		`{"iam": {"api_key": "b"}, "ibm": {"api_key": "a"}}`:                                                     "source.auth.iam",
		`{"oauth2": {"token_url": "http://h", "client_id": "b", "client_secret": "b"}, "iam": {"api_key": "a"}}`: "source.auth.oauth2",
		`{"ibm": {"api_key": "a", "iam": {"api_key": "b"}}}`:                                                     "source.auth.ibm.iam",
		`{"ibm": {"iam": {"api_key": "a", "x": 1}}}`:                                                             "source.auth.ibm.iam.x",
		`{"ibm": {"iam": {"api_key": "a"}, "x": 1}}`:                                                             "source.auth.ibm.x",
	} {
		r := withAuth(t, auth)
		require.Equal(t, []string{"a"}, r.Source.Token("").EndpointParams["apikey"])
		require.Equal(t, []string{unused}, r.Doubtful)
	}
}

// The credentials for tokens are stored, shown without secrets, and part of no id.
func TestTokenCredentials(t *testing.T) {
	t.Parallel()
	plain := parse(t, []byte(`{"source":"http://a.example/db","target":"http://b.example/db"}`))
	id, err := plain.ID("uuid", "")
	require.NoError(t, err)
	for _, auth := range append([]string{oauth2Auth}, apiKeys...) {
		r := withAuth(t, auth)
		require.Empty(t, r.Warnings())
		got, err := r.ID("uuid", "")
		require.NoError(t, err)
		require.Equal(t, id, got)
		require.Equal(t, plain.JobID("ann"), r.JobID("ann"))
		require.False(t, r.Equal(plain))

		stored, err := (&replicator.JobArgs{Replication: r}).Stored()
		require.NoError(t, err)
		var args replicator.JobArgs
		require.NoError(t, json.Unmarshal(stored, &args))
		require.True(t, r.Equal(args.Replication))
		require.Equal(t, r.Source.Token(""), args.Replication.Source.Token(""))

		definition, err := r.Definition()
		require.NoError(t, err)
		again := parse(t, definition)
		require.Equal(t, r.Source.Auth.Kind, again.Source.Auth.Kind)
		require.Empty(t, again.Warnings())
		printed, err := json.Marshal(r)
		require.NoError(t, err)
		endpoint, err := json.Marshal(r.Source)
		require.NoError(t, err)
		for _, text := range []string{
			string(definition), string(printed), string(endpoint), fmt.Sprintf("%v %+v %#v %v %+v %#v", r, r, r, r.Source, r.Source.Auth, *r.Source.Auth),
			r.Secrets().Text("said s3cret-1"), r.Source.Secrets().Text("said s3cret-1"),
		} {
			require.NotContains(t, text, "s3cret")
		}
	}
	shown, err := withAuth(t, oauth2Auth).Definition()
	require.NoError(t, err)
	require.JSONEq(t, `{"source":{"url":"http://a.example/db/","auth":{"oauth2":{"token_url":"https://tokens.example/oauth/token","client_id":"me",
		"client_secret":"*****","scopes":"read write","audience":"couch"}}},"target":{"url":"http://b.example/db/"}}`, string(shown))
}

// Credentials that cannot be right are refused, with the member's name and without its value.
func TestRefusedTokenCredentials(t *testing.T) {
	t.Parallel()
	for auth, field := range map[string]string{
		`{"ibm": {"apikey": "s3cret"}}`:       "source.auth.ibm.api_key",
		`{"ibm": {"iam": {"key": "s3cret"}}}`: "source.auth.ibm.iam.api_key",
		`{"ibm": {"iam": "s3cret"}}`:          "source.auth.ibm.iam",
		`{"iam": {"api_key": ""}}`:            "source.auth.iam.api_key",
		`{"oauth2": "s3cret"}`:                "source.auth.oauth2",
		`{"oauth2": {}}`:                      "source.auth.oauth2.token_url",
		`{"oauth2": {"token_url": "https://h/", "client_secret": "s3cret"}}`:                            "source.auth.oauth2.client_id",
		`{"oauth2": {"token_url": "https://h/", "client_id": "me", "client_secret": ""}}`:               "source.auth.oauth2.client_secret",
		`{"oauth2": {"token_url": "https://h/", "client_id": "me", "client_secret": ["s3cret"]}}`:       "source.auth.oauth2.client_secret",
		`{"oauth2": {"token_url": "https://h/", "client_id": "me", "client_secret": "s", "scopes": 7}}`: "source.auth.oauth2.scopes",
		`{"oauth2": {"token_url": "https://u:s3cret@h/", "client_id": "me", "client_secret": "s"}}`:     "source.auth.oauth2.token_url",
		`{"oauth2": {"token_url": "https://h/?key=s3cret", "client_id": "me", "client_secret": "s"}}`:   "source.auth.oauth2.token_url",
		`{"oauth2": {"token_url": "ftp://h/", "client_id": "me", "client_secret": "s"}}`:                "source.auth.oauth2.token_url",
		`{"oauth2": {"token_url": "/token", "client_id": "me", "client_secret": "s"}}`:                  "source.auth.oauth2.token_url",
	} {
		_, err := replicator.ParseRequest([]byte(`{"source":{"url":"http://a.example/db","auth":`+auth+`},"target":"http://b.example/db"}`), replicator.ParseOptions{})
		var refused *replicator.ParseError
		require.ErrorAs(t, err, &refused, auth)
		require.Equal(t, field, refused.Field)
		require.Contains(t, refused.Reason, "`"+field+"`")
		require.NotContains(t, refused.Reason, "s3cret")
	}
	https := replicator.ParseOptions{EndpointProtocols: []string{"https"}}
	r := parse(t, []byte(`{"source":{"url":"https://a.example/db","auth":{"oauth2":{"token_url":"http://h/","client_id":"a","client_secret":"b"}}},
		"target":"https://b.example/db"}`))
	require.NoError(t, r.Check(replicator.ParseOptions{}))
	require.EqualError(t, r.Check(https), "parameter `source.auth.oauth2.token_url` must be a URL with protocol https")
}
