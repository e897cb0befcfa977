package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/redact"
	"settee/replicator/jobs"
)

const (
	// healthTimeout is how long settee health waits for a response.
	healthTimeout = 10 * time.Second
	// upTimeout is how long /_up on the metrics' port waits for the store.
	upTimeout = 2 * time.Second
	// stalledAfter is how late a loop of the scheduler must be to count as hung.
	stalledAfter = time.Minute
)

func newHealth() *cobra.Command {
	var flags configFlags
	var url string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a node whether it works",
		Long: "health asks a node on this host whether it works, prints its answer, and exits with 0 if it does and\n" +
			"with 1 if it does not. With the same flags and environment as the node it finds the port. It asks\n" +
			"/_up of an api_frontend node. A replication node needs [prometheus] additional_port = true, and is\n" +
			"asked on that port. No credentials are needed.",
		Example: "  settee health " + unitFlags,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if url == "" {
				cfg, _, err := flags.load() // serve prints the warnings
				if err != nil {
					return err
				}
				if url, err = upURL(cfg); err != nil {
					return err
				}
			}
			return askHealth(cmd.Context(), url, cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&url, "url", "", "ask this URL instead, such as http://127.0.0.1:5984/_up")
	return cmd
}

// upURL returns the URL of /_up on a node of this host with the configuration.
func upURL(cfg *config.Config) (string, error) {
	var at netip.AddrPort
	switch {
	case cfg.Roles().APIFrontend:
		at = entrances(cfg)[0].address
	case config.MetricsListen.Get(cfg):
		at = metricsAddress(cfg)
	default:
		return "", fmt.Errorf("a node without the role api_frontend can only be asked if %v is true", config.MetricsListen)
	}
	if at.Port() == 0 {
		return "", errors.New("the port is 0, which means any free port: name the node with --url")
	}
	switch address := at.Addr(); {
	case address.IsUnspecified() && address.Is4():
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	case address.IsUnspecified():
		at = netip.AddrPortFrom(netip.IPv6Loopback(), at.Port())
	}
	return "http://" + at.String() + "/_up", nil
}

// askHealth prints the answer of a node. It returns an error unless the status is 200.
func askHealth(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	// The node is on this host, so no proxy of the environment is used.
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		_, err = out.Write(answer)
		return err
	case http.StatusUnauthorized:
		return fmt.Errorf("%s needs credentials: set [chttpd] require_valid_user_except_for_up instead of require_valid_user", url)
	}
	return fmt.Errorf("%s answered %s: %s", url, response.Status, answer)
}

// works returns nil if the store answers and the node's loops make progress.
func (n *node) works(ctx context.Context) error {
	if _, err := n.jobs.Lists.List(ctx, jobs.Filter{}, jobs.ListOptions{}); err != nil {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	if n.scheduler != nil {
		if late := n.scheduler.Overdue(); late > stalledAfter {
			return fmt.Errorf("the scheduler is %s late", late.Round(time.Second))
		}
	}
	return nil
}

// up answers GET /_up on the metrics' own port.
func (n *node) up(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), upTimeout)
	defer cancel()
	err := context.Cause(kv.Writable(n.db))
	if err == nil {
		err = n.works(ctx)
	}
	answer := struct {
		Status string `json:"status"`
		Reason string `json:"reason,omitempty"`
	}{Status: "ok"}
	status := http.StatusOK
	if err != nil {
		answer.Status, answer.Reason = "failing", redact.Text(err.Error())
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}
