package couchtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// TokenServer gives access tokens, as the server of an identity provider (RFC 6749, section 4.4) and IBM Cloud's IAM do. Its
// handler for all paths is ServeHTTP. Its fields may be changed within Set.
type TokenServer struct {
	// ClientID and ClientSecret, or APIKey, are the credentials that are accepted.
	ClientID, ClientSecret, APIKey string
	// InForm accepts the client's secret in the form only.
	InForm bool
	// Told is the life of tokens that answers say, in seconds; nil for none. Default: 3600. Life is the true one. Default: 1 h.
	Told any
	Life time.Duration
	// Name returns the number-th token. Default: token-1, token-2, ...
	Name func(number int) string
	// Answer, if not nil, answers instead.
	Answer http.HandlerFunc

	mu    sync.Mutex
	asked []TokenQuestion
	given int
	ends  map[string]time.Time // of tokens
}

// TokenQuestion is a request for a token.
type TokenQuestion struct {
	Form   map[string]string
	Client string // as Basic authentication has it
	Path   string
}

// NewTokenServer returns a server for the client "me" with the secret "s3cret-key", and the API key "s3cret-key".
func NewTokenServer() *TokenServer {
	return &TokenServer{
		ClientID: "me", ClientSecret: "s3cret-key", APIKey: "s3cret-key", Told: 3600, Life: time.Hour,
		Name: func(number int) string { return fmt.Sprint("token-", number) }, ends: map[string]time.Time{},
	}
}

// Set changes the server while it runs.
func (s *TokenServer) Set(change func(*TokenServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// Asked returns the requests so far.
func (s *TokenServer) Asked() []TokenQuestion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]TokenQuestion(nil), s.asked...)
}

// Revoke ends all tokens.
func (s *TokenServer) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ends)
}

// ServeHTTP answers a request for a token.
func (s *TokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = r.ParseForm() // a body that is none has no members
	form := map[string]string{}
	for name := range r.PostForm {
		form[name] = r.PostForm.Get(name)
	}
	client, secret, basic := r.BasicAuth()
	s.asked = append(s.asked, TokenQuestion{form, client, r.URL.Path})
	if s.Answer != nil {
		answer := s.Answer
		s.mu.Unlock() // it may wait
		defer s.mu.Lock()
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	ibm := form["grant_type"] == "urn:ibm:params:oauth:grant-type:apikey"
	if !basic || s.InForm {
		client, secret = form["client_id"], form["client_secret"]
	}
	switch {
	case ibm && (form["apikey"] != s.APIKey || form["response_type"] != "cloud_iam"):
		refuse(w, http.StatusBadRequest, map[string]any{"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found: " + form["apikey"]})
		return
	case !ibm && (form["grant_type"] != "client_credentials" || client != s.ClientID || secret != s.ClientSecret):
		refuse(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": "not " + secret})
		return
	}
	s.given++
	token := s.Name(s.given)
	s.ends[token] = time.Now().Add(s.Life)
	answer := map[string]any{"access_token": token, "token_type": "Bearer"}
	if s.Told != nil {
		answer["expires_in"] = s.Told
	}
	_ = json.NewEncoder(w).Encode(answer) // the client reads what arrives
}

func refuse(w http.ResponseWriter, status int, body map[string]any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// Valid reports whether a request has a token that has not expired.
func (s *TokenServer) Valid(r *http.Request) bool {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	return bearer && time.Now().Before(s.ends[token])
}

// Guard returns a handler that refuses requests without a valid token, and passes the others on.
func (s *TokenServer) Guard(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.Valid(r) {
			w.Header().Set("Content-Type", "application/json")
			refuse(w, http.StatusUnauthorized, map[string]any{"error": "unauthorized", "reason": "not " + r.Header.Get("Authorization")})
			return
		}
		inner.ServeHTTP(w, r)
	})
}
