package lab

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Program is a measuring program with flags and without arguments. It measures until it has ended or gets a signal, and
// then prints what it has.
type Program struct {
	Name string
	// Register adds the flags, and Check checks their values.
	Register func(*flag.FlagSet)
	Check    func() error
	// Measure returns a function that prints the report, nil if there is none. There may be one with an error.
	Measure func(context.Context) (report func() error, err error)
}

// Run runs the program. It exits with the status 2 if the flags are wrong, and with 1 after another error.
func (p Program) Run() {
	p.Register(flag.CommandLine)
	flag.Parse()
	err := p.Check()
	if flag.NArg() > 0 {
		err = errors.New("it takes no arguments")
	}
	if err != nil {
		flag.Usage()
		Exit(p.Name, err, 2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	printed, err := p.Measure(ctx)
	stop()
	if printed != nil {
		err = errors.Join(err, printed())
	}
	if err != nil {
		Exit(p.Name, err, 1)
	}
}

// Exit prints an error of a program and exits.
func Exit(program string, err error, status int) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	os.Exit(status)
}

// Print prints a report as a table or as a JSON object.
func Print(w io.Writer, report any, table func(io.Writer) error, asJSON bool) error {
	if !asJSON {
		return table(w)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	return err
}
