"""State between calls, a table, a picture and an error."""

from sandal import Sandal

with Sandal() as sandal, sandal.sandboxes.create("code-interpreter-python") as sb:
    sb.fs.write("sales.csv", "region,revenue\nnorth,3\nsouth,5\nnorth,4\n")
    sb.run_code("import pandas as pd\ndf = pd.read_csv('sales.csv')").raise_()
    print(sb.run_code("df.groupby('region').sum()").text)

    plot = sb.run_code("df.plot.bar(x='region', y='revenue'); None").raise_()
    for result in plot.results:
        print("saved", result.save("plot.png"))

    failed = sb.run_code("df['nothing']")
    if failed.error:
        print(failed.error.name, failed.error.message)
