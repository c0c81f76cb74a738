package commandline

import (
	"github.com/spf13/pflag"

	"jettison/internal/base/output"
)

// Output is the flag --output: how a command prints its answer.
type Output struct{ format string }

// Add adds the flag. The text of is put before its description; empty: the flag is for the whole
// command.
func (o *Output) Add(f *pflag.FlagSet, of string) {
	f.StringVarP(&o.format, "output", "o", string(output.AsTable), of+"table, wide, json or yaml")
}

// Format returns the format that the flag names. An error is one of usage.
func (o *Output) Format() (output.Format, error) {
	format, err := output.ParseFormat(o.format)
	if err != nil {
		return "", Usage(err)
	}
	return format, nil
}
