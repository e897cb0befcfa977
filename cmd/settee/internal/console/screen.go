package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"settee/cmd/settee/internal/remote"
)

// listEvery is the least time between two requests for lists that may be large.
const listEvery = 5 * time.Second

// source is a request whose answer the overview shows.
type source struct {
	path  string
	every time.Duration
	// take takes an answer into the overview.
	take func(o *overview, text []byte) error
}

// sources are the requests of the overview. Their answers have at most maxPage jobs.
func sources() []source {
	const least = remote.LeastPause
	return []source{
		{"/_scheduler/summary", least, taking(func(o *overview, s Summary) { o.summary = &s })},
		{nodesPath, least, taking(func(o *overview, all memberList) { o.nodes = all.Nodes })},
		{"/_scheduler/rates", least, taking(func(o *overview, r Rates) { o.rates = r })},
		{"/_scheduler/problems", least, taking(func(o *overview, p Problems) { o.problems = p })},
		{Filter{States: []string{"running"}}.path(maxPage, ""), listEvery, taking(func(o *overview, p page) {
			o.running = p.Jobs
			o.pace.note(time.Now(), p.Jobs)
		})},
	}
}

// taking returns the take of a source whose answers are of a type. An answer that cannot be read changes nothing.
func taking[T any](take func(*overview, T)) func(*overview, []byte) error {
	return func(o *overview, text []byte) error {
		var answer T
		if err := json.Unmarshal(text, &answer); err != nil {
			return err
		}
		take(o, answer)
		return nil
	}
}

// WriteOverview writes the overview once, without colors.
func (n *Node) WriteOverview(ctx context.Context, out io.Writer, width, height int) error {
	o := &overview{host: n.Host()}
	for _, s := range sources() {
		var text json.RawMessage
		err := n.Get(ctx, s.path, &text)
		if err == nil {
			err = s.take(o, text)
		}
		if err != nil {
			return err
		}
	}
	return o.write(out, time.Now(), width, height)
}

// Top draws the overview on a screen, and again when the node has news, until q, Escape or Ctrl-C is pressed or the context
// ends. It initializes the screen, and restores the terminal.
func (n *Node) Top(ctx context.Context, screen tcell.Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	// The first answer decides whether there is anything to show.
	if err := n.Get(ctx, "/_scheduler/summary", nil); err != nil {
		cancel()
		return err
	}
	if err := screen.Init(); err != nil {
		cancel()
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	defer screen.Fini()
	news := make(chan func(*overview))
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	for _, s := range sources() {
		following.Go(func() { n.feed(ctx, s, news) })
	}
	o := &overview{host: n.Host()}
	ages := time.NewTicker(time.Second)
	defer ages.Stop()
	for {
		width, height := screen.Size()
		draw(screen, o.lines(time.Now(), width, height))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case change := <-news:
			change(o)
		case <-ages.C:
		case event, ok := <-screen.EventQ():
			if !ok || ends(event) {
				return nil
			}
			if _, ok := event.(*tcell.EventResize); ok {
				screen.Sync()
			}
		}
	}
}

// feed sends what a source answers, until the context ends.
func (n *Node) feed(ctx context.Context, s source, news chan<- func(*overview)) {
	_ = n.Follow(ctx, s.path, s.every, func(text []byte, err error) error { // the error says that the context has ended
		select {
		case news <- func(o *overview) {
			if err == nil {
				err = s.take(o, text)
			}
			o.note(s.path, err)
		}:
		case <-ctx.Done():
		}
		return nil
	})
}

// ends reports whether a key was pressed that ends the program.
func ends(event tcell.Event) bool {
	key, ok := event.(*tcell.EventKey)
	return ok && (key.Key() == tcell.KeyEscape || key.Key() == tcell.KeyCtrlC || key.Str() == "q")
}

var styles = map[tone]tcell.Style{
	plain:  tcell.StyleDefault,
	strong: tcell.StyleDefault.Bold(true),
	faint:  tcell.StyleDefault.Dim(true),
	good:   tcell.StyleDefault.Foreground(color.Green),
	bad:    tcell.StyleDefault.Foreground(color.Red),
}

// draw draws lines on a screen. What does not fit is cut off.
func draw(screen tcell.Screen, lines [][]part) {
	screen.Clear()
	width, height := screen.Size()
	for y, line := range lines[:min(len(lines), height)] {
		x := 0
		for _, p := range line {
			for text := p.text; text != "" && x < width; {
				rest, taken := screen.Put(x, y, text, styles[p.tone])
				text, x = rest, x+taken
			}
		}
	}
	screen.Show()
}
