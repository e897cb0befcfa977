package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"settee/frontend/accounts"
)

// adminKey matches names that are keys of [admins] and users of basic authentication.
var adminKey = regexp.MustCompile(`^[^\s:;=#\[\]"\x00-\x1f\x7f]+$`)

func newPassword() *cobra.Command {
	var flags configFlags
	var path string
	cmd := &cobra.Command{
		Use:   "password NAME",
		Short: "Print a configuration file that makes NAME a server administrator",
		Long: "password asks for a password, twice if standard input is a terminal, and prints an ini file with its hash:\n" +
			"the section [admins] with the administrator NAME. With --file it writes the file, and root writes\n" +
			"a file of /etc/settee for the service of the packages, which can read it. A node that is started with the\n" +
			"file, or reads it again on SIGHUP, has this administrator. The password itself is in no file and in no list of processes.",
		Example: "  sudo settee password admin --file /etc/settee/admin.ini",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !adminKey.MatchString(args[0]) {
				return usage(cmd, fmt.Errorf("%q cannot be the name of an administrator: it has spaces or one of : ; = # [ ] \"", args[0]))
			}
			cfg, _, err := flags.load() // serve prints the warnings
			if err != nil {
				return err
			}
			if _, err := os.Lstat(path); path != "" && err == nil {
				return fmt.Errorf("%s exists: remove it, or name another file", path)
			}
			password, err := readPassword(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			text := fmt.Sprintf("[admins]\n%s = %s\n", args[0], accounts.HashPassword(cfg, password))
			if path != "" {
				return writeForService(path, []byte(text))
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	flags.registerStoreless(cmd)
	cmd.Flags().StringVar(&path, "file", "", "write this file, which must not exist, instead of printing its text")
	return cmd
}

// readPassword reads a password: twice from a terminal, without showing it, otherwise the first line.
func readPassword(in io.Reader, out io.Writer) (password string, err error) {
	if file := terminal(in); file != nil {
		var again string
		ask := asker{file, out}
		if password, err = ask.AskSecret("Password: "); err != nil {
			return "", err
		}
		if again, err = ask.AskSecret("Once more: "); err != nil {
			return "", err
		}
		if again != password {
			return "", errors.New("the two passwords differ")
		}
	} else {
		password, err = bufio.NewReader(in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		password = strings.TrimRight(password, "\r\n")
	}
	if password == "" {
		return "", errors.New("the password is empty")
	}
	return password, nil
}

// asker asks questions on a terminal.
type asker struct {
	in  *os.File
	out io.Writer
}

// Ask asks a question, and returns the line that is typed.
func (a asker) Ask(question string) (string, error) {
	if _, err := io.WriteString(a.out, question); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("reading from the terminal: %w", err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// AskSecret is Ask without showing what is typed.
func (a asker) AskSecret(question string) (string, error) {
	restore, err := hideTyping(a.in) // before the question: an answer may come at once
	if err != nil {
		return "", err
	}
	defer restore()
	if _, err := io.WriteString(a.out, question); err != nil {
		return "", err
	}
	answer, err := term.ReadPassword(int(a.in.Fd()))
	_, _ = io.WriteString(a.out, "\n") // the line that the terminal did not show
	return string(answer), err
}
