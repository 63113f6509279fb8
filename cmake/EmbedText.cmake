# Writes a C++ header with one string of several text files, one after the other:
#   cmake -DOUT=<header> -DNAME=<constant> -DIN=<file>[,<file>…] -P EmbedText.cmake
string(REPLACE "," ";" files "${IN}")
set(text "")
foreach(file ${files})
  file(READ ${file} part)
  string(APPEND text "${part}\n")
endforeach()
file(WRITE ${OUT} "#pragma once\n\ninline constexpr char ${NAME}[] = R\"embedded(${text})embedded\";\n")
