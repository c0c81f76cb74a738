package frames

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"jettison/internal/jsonwords"
)

// explain says which field of a frame the library stumbled on, and why. cut: the line is the file's last and has no end.
func explain(err error, cut bool) (field, what string) {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntactic):
		field = jsonwords.Field(syntactic.JSONPointer)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return field, "is there a second time"
		case errors.Is(err, io.ErrUnexpectedEOF) && cut:
			return field, "the file ends in the middle of this frame: it was cut off"
		case errors.Is(err, io.ErrUnexpectedEOF):
			return field, "the line ends in the middle of a frame: want one JSON object a line"
		}
		return field, fmt.Sprintf("not JSON: %v, at byte %d of the line", syntactic.Err, syntactic.ByteOffset)
	case errors.As(err, &semantic):
		return jsonwords.Field(semantic.JSONPointer), jsonwords.Unfit(semantic, reflect.TypeFor[Frame]())
	}
	return "", err.Error()
}
