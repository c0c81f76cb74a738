package commandline

import (
	"errors"

	"github.com/spf13/pflag"

	"jettison/internal/base/output"
)

// Output is the flag --output: the format of a command's answer.
type Output struct {
	format  string
	formats []output.Format
}

// Add adds the flag.
func (o *Output) Add(f *pflag.FlagSet) { o.AddFormats(f, output.Formats...) }

// AddStream adds the flag to a command that may print several documents.
func (o *Output) AddStream(f *pflag.FlagSet) { o.AddFormats(f, output.Streams...) }

// AddFormats adds the flag to a command with these formats only; the first one is the default.
func (o *Output) AddFormats(f *pflag.FlagSet, formats ...output.Format) {
	o.formats = formats
	f.StringVarP(&o.format, "output", "o", string(formats[0]), output.OneOf(formats))
	Values(f, "output", formats...)
}

// Format returns the format of the flag. An error is a usage error.
func (o *Output) Format() (output.Format, error) {
	format, err := output.ParseFormat(o.format, o.formats)
	if err != nil {
		return "", Usage(err)
	}
	return format, nil
}

// StreamFormat returns the format of a command that prints a stream, which is not one JSON
// document. An error is a usage error.
func (o *Output) StreamFormat() (output.Format, error) {
	format, err := o.Format()
	if err == nil && format == output.AsJSON {
		err = Usage(errors.New("--output json: want jsonl or yaml, because the command prints a stream"))
	}
	return format, err
}
