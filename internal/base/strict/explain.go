package strict

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Explain returns the field and the cause of an error of the JSON library; read is the type that
// was decoded. cut: the line is the last of the file and has no line end.
func Explain(err error, cut bool, read reflect.Type) (field, what string) {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntactic):
		field = Field(syntactic.JSONPointer)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return field, "duplicate field"
		case errors.Is(err, io.ErrUnexpectedEOF) && cut:
			return field, "the file is truncated in this frame"
		case errors.Is(err, io.ErrUnexpectedEOF):
			return field, "incomplete frame: want one JSON object on each line"
		}
		return field, fmt.Sprintf("not JSON: %v, at byte %d of the line", syntactic.Err,
			syntactic.ByteOffset)
	case errors.As(err, &semantic):
		return Field(semantic.JSONPointer), Mismatch(semantic, read)
	}
	return "", err.Error()
}
