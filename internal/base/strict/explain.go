package strict

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Explain says which field of a line the library stumbled on, and why; read is the type that was
// read. cut: the line is the file's last and has no end.
func Explain(err error, cut bool, read reflect.Type) (field, what string) {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntactic):
		field = Field(syntactic.JSONPointer)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return field, "is there a second time"
		case errors.Is(err, io.ErrUnexpectedEOF) && cut:
			return field, "the file ends in the middle of this frame: it was cut off"
		case errors.Is(err, io.ErrUnexpectedEOF):
			return field, "the line ends in the middle of a frame: want one JSON object a line"
		}
		return field, fmt.Sprintf("not JSON: %v, at byte %d of the line", syntactic.Err,
			syntactic.ByteOffset)
	case errors.As(err, &semantic):
		return Field(semantic.JSONPointer), Unfit(semantic, read)
	}
	return "", err.Error()
}
