/* What every test file of this folder begins with. */
#ifndef SANDAL_TESTS_CASES_H
#define SANDAL_TESTS_CASES_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/integ/rig.h"

#endif
