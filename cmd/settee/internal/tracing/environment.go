package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"settee/pkg/redact"
)

// environment returns the value of a variable. The SDK reads the same ones, and ignores values that are not valid.
type environment func(name string) string

// get returns the value of a variable without the white space around it.
func (env environment) get(name string) string { return strings.TrimSpace(env(name)) }

const exporterPrefix = "OTEL_EXPORTER_OTLP_"

// exporter returns the value of a variable of the exporter, and its name: that for traces, if it is set, else that for
// all signals.
func (env environment) exporter(name string) (value, variable string) {
	for _, variable := range []string{exporterPrefix + "TRACES_" + name, exporterPrefix + name} {
		if value := env.get(variable); value != "" {
			return value, variable
		}
	}
	return "", ""
}

// target returns the URL that traces are sent to. OTEL_EXPORTER_OTLP_INSECURE has no effect on it: the scheme decides, as
// the specification says. The SDK would let the variable decide.
func (env environment) target() (string, error) {
	if own := env.get(exporterPrefix + "TRACES_ENDPOINT"); own != "" {
		return own, nil
	}
	return url.JoinPath(cmp.Or(env.get(exporterPrefix+"ENDPOINT"), defaultCollector), "v1/traces")
}

// on reports whether the environment asks for traces.
func (env environment) on() (bool, error) {
	const disabled, exporter = "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"
	off := env.get(disabled)
	if !isBoolean(off) {
		return false, invalid(disabled, off, "true or false")
	}
	if strings.EqualFold(off, "true") {
		return false, nil
	}
	switch value := env.get(exporter); value {
	case "":
		endpoint, _ := env.exporter("ENDPOINT")
		return endpoint != "", nil
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	default:
		return false, invalid(exporter, value, "otlp or none")
	}
}

// check returns an error for the first variable that is not valid.
func (env environment) check() error {
	if value, variable := env.exporter("PROTOCOL"); value != "" && value != "http/protobuf" {
		return invalid(variable, value, "http/protobuf")
	}
	for _, name := range []string{"ENDPOINT", "TRACES_ENDPOINT"} {
		if err := env.checkEndpoint(exporterPrefix + name); err != nil {
			return err
		}
	}
	for _, name := range []string{"HEADERS", "TRACES_HEADERS"} {
		if _, err := pairs(env.get(exporterPrefix + name)); err != nil {
			return fmt.Errorf("%s: %w", exporterPrefix+name, err)
		}
	}
	if _, err := pairs(env.get("OTEL_RESOURCE_ATTRIBUTES")); err != nil {
		return fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	for _, rule := range rules {
		value := env.get(rule.variable)
		if value != "" && !rule.valid(value) {
			return invalid(rule.variable, value, rule.want)
		}
	}
	return env.checkSampler()
}

// rules are the variables whose values are checked one by one.
var rules = []struct {
	variable string
	valid    func(string) bool
	want     string
}{
	{exporterPrefix + "TIMEOUT", isPositive, wantPositive},
	{exporterPrefix + "TRACES_TIMEOUT", isPositive, wantPositive},
	{exporterPrefix + "COMPRESSION", isCompression, wantCompression},
	{exporterPrefix + "TRACES_COMPRESSION", isCompression, wantCompression},
	{"OTEL_BSP_SCHEDULE_DELAY", isPositive, wantPositive},
	{"OTEL_BSP_EXPORT_TIMEOUT", isPositive, wantPositive},
	{"OTEL_BSP_MAX_QUEUE_SIZE", isPositive, wantPositive},
	{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", isPositive, wantPositive},
	{"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", isNumber, wantNumber},
	{"OTEL_ATTRIBUTE_COUNT_LIMIT", isNumber, wantNumber},
	{"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", isNumber, wantNumber},
	{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", isNumber, wantNumber},
	{"OTEL_SPAN_EVENT_COUNT_LIMIT", isNumber, wantNumber},
	{"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", isNumber, wantNumber},
	{"OTEL_SPAN_LINK_COUNT_LIMIT", isNumber, wantNumber},
	{"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", isNumber, wantNumber},
}

const (
	wantPositive    = "a positive whole number"
	wantNumber      = "a whole number"
	wantCompression = "gzip or none"
)

func isPositive(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

func isBoolean(text string) bool {
	return text == "" || strings.EqualFold(text, "true") || strings.EqualFold(text, "false")
}

func isCompression(text string) bool { return text == "gzip" || text == "none" }

// checkEndpoint checks the URL of a collector. The error does not quote it, because it may have a password.
func (env environment) checkEndpoint(variable string) error {
	text := env.get(variable)
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s: it must be a URL such as http://collector.example.org:4318", variable)
	case u.User != nil:
		return fmt.Errorf("%s: credentials in the URL are not sent: use %sHEADERS", variable, exporterPrefix)
	}
	return nil
}

// checkSampler checks OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG.
func (env environment) checkSampler() error {
	const sampler, arg = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	switch value := strings.ToLower(env.get(sampler)); value {
	case "", "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
		return nil
	case "traceidratio", "parentbased_traceidratio":
	default:
		return invalid(sampler, value, "always_on, always_off, traceidratio, or one of these after parentbased_")
	}
	if value := env.get(arg); value != "" {
		if ratio, err := strconv.ParseFloat(value, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return invalid(arg, value, "a number from 0 to 1")
		}
	}
	return nil
}

func invalid(variable, value, want string) error {
	return fmt.Errorf("%s=%s: it must be %s", variable, value, want)
}

// pair is a member of a list such as a=1,b=2.
type pair struct{ name, value string }

// pairs parses a list of pairs. Its errors quote no value.
func pairs(text string) (all []pair, err error) {
	if text == "" {
		return nil, nil
	}
	for member := range strings.SplitSeq(text, ",") {
		name, escaped, found := strings.Cut(member, "=")
		value, err := url.PathUnescape(strings.TrimSpace(escaped))
		if name = strings.TrimSpace(name); !found || name == "" || strings.ContainsAny(name, " \t\r\n:") || err != nil {
			return nil, errors.New("it must be a list such as a=1,b=2, with %2C for a comma in a value")
		}
		all = append(all, pair{name, value})
	}
	return all, nil
}

// secrets returns the values of the headers, which a collector may repeat in its errors.
func (env environment) secrets() (set redact.Set) {
	for _, name := range []string{"HEADERS", "TRACES_HEADERS"} {
		headers, _ := pairs(env.get(exporterPrefix + name)) // check has checked them
		for _, h := range headers {
			set = set.WithHeader(h.name, h.value)
		}
	}
	return set
}

// read returns the content of the file that a variable of the exporter names, or nil if there is none.
func (env environment) read(name string) (content []byte, variable string, err error) {
	path, variable := env.exporter(name)
	if path == "" {
		return nil, cmp.Or(variable, exporterPrefix+name), nil
	}
	content, err = os.ReadFile(path)
	if err != nil {
		return nil, variable, fmt.Errorf("%s: %w", variable, err)
	}
	return content, variable, nil
}
