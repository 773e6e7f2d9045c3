"""The accounts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Create them."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                ("customer", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("balance_cents", models.BigIntegerField(default=0)),
            ],
        ),
    ]
