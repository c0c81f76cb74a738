package commandline

import (
	"github.com/spf13/pflag"

	"jettison/internal/base/output"
)

// Output is the flag --output: the format of a command's answer.
type Output struct{ format string }

// Add adds the flag. prefix comes before its description; empty if the flag applies to the whole
// command.
func (o *Output) Add(f *pflag.FlagSet, prefix string) {
	f.StringVarP(&o.format, "output", "o", string(output.AsTable), prefix+"table, wide, json or yaml")
}

// Format returns the format of the flag. An error is a usage error.
func (o *Output) Format() (output.Format, error) {
	format, err := output.ParseFormat(o.format)
	if err != nil {
		return "", Usage(err)
	}
	return format, nil
}
