package servers

import (
	"context"
	"fmt"
	"os/exec"
)

// BuildSettee builds settee with build tags into a file. module is a directory of the module to build, or empty for the
// working directory. Go keeps what go run links, so the tests of several packages link each program once.
func BuildSettee(ctx context.Context, module, tags, file string) error {
	build := exec.CommandContext(ctx, "go", "run", "-trimpath", "-tags", tags, "-exec", "cp", "settee/cmd/settee", file)
	build.Dir = module
	if printed, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building settee: %w\n%s", err, printed)
	}
	return nil
}
