package flags

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"jettison/internal/base/output"
)

// Reason returns an error as one line, with the advice to run as root if this user lacks a
// permission.
func Reason(err error) string {
	text := output.OneLine(err.Error())
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 && !strings.Contains(text, "run as root") {
		text += ": run as root"
	}
	return text
}
